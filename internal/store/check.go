package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// The kinds of findings.
const (
	// KindStructure is damage of the file as a whole, found page by page: Open will refuse it.
	KindStructure = "structure"
	// KindCount says that the kept count of a bucket is wrong, or that a bucket or its count is missing.
	KindCount = "count"
	// KindValue is one value whose checksum is wrong.
	KindValue = "value"
	// KindMeta says that the older one of the two meta pages is damaged; the next commit writes it again.
	KindMeta = "meta"
	// KindLeak counts pages that are neither used nor free: lost space, nothing else.
	KindLeak = "leak"
	// KindBolt is what bbolt's own check says.
	KindBolt = "bbolt"
)

// Finding is one thing that Check found wrong.
type Finding struct {
	Kind   string
	Bucket string // where it concerns one
	Key    []byte // where it concerns one value
	Detail string
}

// String is one line for people.
func (f Finding) String() string {
	switch {
	case f.Kind == KindValue:
		return fmt.Sprintf("%s: bucket %s, key %q: %s", f.Kind, f.Bucket, f.Key, f.Detail)
	default:
		return f.Kind + ": " + f.Detail
	}
}

// maxFindings bounds what one Check returns.
const maxFindings = 1000

// Check reads the whole file and returns what is wrong with it, at most 1000 findings. An error says that the check
// itself could not be made: ctx ended, the store is closed or has failed.
//
// It goes through pages, keys, checksums and counts in one read transaction, beside which the store goes on, but see View
// for what a long one costs. Where that finds the structure sound, bbolt's own check follows on the writer goroutine, and
// Updates wait for it. On a damaged structure it is left out: it reads the mapped file on a goroutine of its own, where no
// fault can be caught, and would take the process down. What is left of that risk is a page that was read a moment ago and
// cannot be read again.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		findings = nil
		err := s.View(func(tx *Tx) (err error) {
			findings, done, err = s.checkPages(ctx, tx)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", s.path, err)
		}
	}
	for _, f := range findings {
		if f.Kind == KindStructure {
			return findings, nil
		}
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	var more []Finding
	err := s.submit(ctx.Done(), ctx.Err, func(tx *Tx) error {
		more = nil
		tx.inBolt = true
		for err := range tx.raw.Check() {
			if len(findings)+len(more) < maxFindings {
				more = append(more, Finding{Kind: KindBolt, Detail: err.Error()})
			}
		}
		tx.inBolt = false
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", s.path, err)
	}
	return append(findings, more...), nil
}

// checkPages walks the state that tx sees. done is false when the writer overtook it before it began.
func (s *Store) checkPages(ctx context.Context, tx *Tx) (findings []Finding, done bool, err error) {
	f, moved, err := s.openForCheck(tx.gen)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if moved {
		return nil, false, nil
	}
	info, err := sameFile(f, tx.gen.file)
	if errors.Is(err, errReplaced) {
		return []Finding{{Kind: KindStructure, Detail: err.Error()}}, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	newest, badMeta, err := readMeta(f, info.Size())
	if badMeta || errors.Is(err, errStructure) {
		// It may have been read while it was being written.
		newest, badMeta, err = readMeta(f, info.Size())
	}
	if errors.Is(err, errStructure) {
		return []Finding{{Kind: KindStructure, Detail: err.Error()}}, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if newest.txid != uint64(tx.raw.ID()) {
		return nil, false, nil
	}
	if badMeta {
		findings = append(findings, Finding{Kind: KindMeta, Detail: "the older one of the two meta pages is damaged"})
	}
	found, done, err := s.walk(ctx, f, newest)
	return append(findings, found...), done, err
}

// openForCheck opens the file under the store's path. moved says that it is not that of g, because a compaction replaced g.
func (s *Store) openForCheck(g *generation) (f *durable.File, moved bool, err error) {
	s.moving.Lock()
	defer s.moving.Unlock()
	f, err = s.opts.FS.OpenRead(s.path)
	now := s.enter()
	s.leave(now)
	return f, now != g, err
}

func (s *Store) walk(ctx context.Context, r io.ReaderAt, m metaPage) (findings []Finding, done bool, err error) {
	add := func(f Finding) {
		if len(findings) < maxFindings {
			findings = append(findings, f)
		}
	}
	c := newContents()
	w := newWalker(r, m, func(bucket string, key, stored []byte) {
		if bad := c.visit(bucket, key, stored); bad != nil {
			add(Finding{Kind: KindValue, Bucket: bucket, Key: bad.Key, Detail: bad.Reason})
		}
	})
	w.stop = ctx.Err
	if err := w.walk(); err != nil {
		return nil, false, err
	}
	for _, d := range append(w.damage, c.unreadable...) {
		add(Finding{Kind: KindStructure, Detail: d})
	}
	if len(w.damage) == 0 {
		c.buckets = w.buckets
		for _, d := range c.counted() {
			add(Finding{Kind: KindCount, Detail: d})
		}
	}
	if w.leaked > 0 {
		add(Finding{Kind: KindLeak, Detail: fmt.Sprintf("%d pages are neither used nor free", w.leaked)})
	}
	return findings, true, nil
}
