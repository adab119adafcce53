package queue

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Row is one line of the journal. ID is empty for a decision about the whole channel.
type Row struct {
	Seq    uint64           `json:"seq"`
	At     time.Time        `json:"at"`
	ID     attachment.ID    `json:"id,omitempty"`
	Event  attachment.Event `json:"event"`
	From   attachment.State `json:"from,omitempty"`
	To     attachment.State `json:"to,omitempty"`
	Reason attachment.Code  `json:"reason,omitempty"`
	Detail string           `json:"detail,omitempty"`
	// By names the person who acted, as the control socket saw it; empty for the daemon itself.
	By string `json:"by,omitempty"`
}

// lostRow is the detail of a row whose value was damaged.
const lostRow = "this line of the journal is damaged"

// maxDetail bounds a journal row's free text, in bytes.
const maxDetail = 512

func appendRow(tx *store.Tx, row *Row) error {
	seq, err := tx.Bucket(bJournal).NextSequence()
	if err != nil {
		return err
	}
	row.Seq = seq
	if len(row.Detail) > maxDetail {
		row.Detail = row.Detail[:maxDetail]
	}
	if err := store.PutJSON(tx.Bucket(bJournal), seqKey(seq), row); err != nil {
		return err
	}
	if row.ID == "" {
		return nil
	}
	return tx.Bucket(bHistory).Put(historyKey(row.ID, seq), nil)
}

// History returns the journal rows of one attachment, oldest first, at most limit of the newest.
func (q *Queue) History(id attachment.ID, limit int) ([]Row, error) {
	var rows []Row
	err := q.store.View(func(tx *store.Tx) error {
		var seqs []uint64
		err := tx.Bucket(bHistory).Scan(idKey(id), nil, func(key, _ []byte, _ error) error {
			seqs = append(seqs, binary.BigEndian.Uint64(key[len(id):]))
			if len(seqs) > limit {
				seqs = seqs[1:]
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, seq := range seqs {
			row, found, err := store.GetJSON[Row](tx.Bucket(bJournal), seqKey(seq))
			if isBadValue(err) || !found {
				row = Row{Seq: seq, ID: id, Detail: lostRow}
			} else if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

func decodeRow(value []byte) (Row, error) {
	var row Row
	err := json.Unmarshal(value, &row)
	return row, err
}
