package store

import (
	"errors"
	"log/slog"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// boltLog is bbolt's logger and writes nothing. It remembers whether bbolt told it of a full volume: an error of making the
// file longer is returned as text alone, and comes here with its number.
type boltLog struct {
	*bolt.DefaultLogger
	mu   sync.Mutex
	full error
}

func newBoltLog() *boltLog {
	return &boltLog{DefaultLogger: &bolt.DefaultLogger{Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}}
}

// Errorf looks at the values, not at the text.
func (l *boltLog) Errorf(_ string, values ...any) {
	for _, v := range values {
		if err, ok := v.(error); ok && durable.IsNoSpace(err) {
			l.mu.Lock()
			l.full = err
			l.mu.Unlock()
		}
	}
}

// explain adds to the error of a commit what bbolt said of a full volume meanwhile, and forgets it.
func (l *boltLog) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.full
	l.full = nil
	if err == nil || full == nil || durable.IsNoSpace(err) {
		return err
	}
	return errors.Join(err, full)
}
