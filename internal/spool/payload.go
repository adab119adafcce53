package spool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// readBuffer is the size in bytes of the pieces in which payloads are read.
const readBuffer = 64 << 10

// Payload reads a secured payload and holds it against its fingerprint. It is for one goroutine at a time, ReadAt apart.
type Payload struct {
	id      attachment.ID
	file    *durable.File
	want    attachment.Fingerprint
	checked []bool
}

// OpenPayload opens a payload in the spool, or its delivered copy. Errors wrap ErrMissing when there is none and
// ErrChanged when its length is not the recorded one.
func (s *Spool) OpenPayload(id attachment.ID, want attachment.Fingerprint) (*Payload, error) {
	area, found, err := s.Locate(id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("open payload %s: %w", id, ErrMissing)
	}
	file, err := s.fs.OpenRead(s.Path(area, id))
	if err != nil {
		return nil, fmt.Errorf("open payload %s: %w", id, err)
	}
	p := &Payload{id: id, file: file, want: want, checked: make([]bool, len(want.Segments))}
	if err := p.checkLength(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

func (p *Payload) checkLength() error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != p.want.Length || len(p.want.Segments) != attachment.SegmentCount(p.want.Length) {
		return fmt.Errorf("payload %s has %d bytes, want %d: %w", p.id, info.Size(), p.want.Length, ErrChanged)
	}
	return nil
}

// Check reads every segment that holds a byte of [offset, offset+n) and compares it with its recorded digest. A segment
// is read once per open payload. Errors wrap ErrChanged.
func (p *Payload) Check(ctx context.Context, offset, n int64) error {
	if offset < 0 || n < 0 || offset+n > p.want.Length {
		return fmt.Errorf("check payload %s: bytes %d to %d of %d: %w", p.id, offset, offset+n, p.want.Length, ErrChanged)
	}
	if err := p.checkLength(); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	for i := offset / attachment.SegmentSize; i <= (offset+n-1)/attachment.SegmentSize; i++ {
		if p.checked[i] {
			continue
		}
		if err := p.checkSegment(ctx, i); err != nil {
			return err
		}
		p.checked[i] = true
	}
	return nil
}

func (p *Payload) checkSegment(ctx context.Context, i int64) error {
	start := i * attachment.SegmentSize
	section := io.NewSectionReader(p.file, start, min(attachment.SegmentSize, p.want.Length-start))
	sum := sha256.New()
	buf := make([]byte, readBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := section.Read(buf)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read payload %s: %w", p.id, err)
		}
	}
	if attachment.Digest(sum.Sum(nil)) != p.want.Segments[i] {
		return fmt.Errorf("payload %s, segment %d: %w", p.id, i, ErrChanged)
	}
	return nil
}

// ReadAt reads payload bytes without checking them; call Check first.
func (p *Payload) ReadAt(buf []byte, offset int64) (int, error) { return p.file.ReadAt(buf, offset) }

// Close closes the file.
func (p *Payload) Close() error { return p.file.Close() }

// Fingerprint reads a whole file from its current position and returns its fingerprint. proceed, when not nil, is asked
// between pieces and ends the reading with its error.
func Fingerprint(ctx context.Context, r io.Reader, proceed func() error) (attachment.Fingerprint, error) {
	h := attachment.NewHasher()
	_, err := CopyHashing(ctx, io.Discard, r, h, proceed)
	if err != nil {
		return attachment.Fingerprint{}, err
	}
	return h.Sum(), nil
}

// CopyHashing copies r to w in small pieces and feeds every piece to h. proceed, when not nil, is asked between pieces
// and ends the copy with its error. Every piece is a beat of the context's pulse.
func CopyHashing(ctx context.Context, w io.Writer, r io.Reader, h *attachment.Hasher, proceed func() error) (int64, error) {
	buf := make([]byte, readBuffer)
	var total int64
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if proceed != nil {
			if err := proceed(); err != nil {
				return total, err
			}
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, herr := h.Write(buf[:n]); herr != nil {
				return total, herr
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				return total, werr
			}
			total += int64(n)
			clock.Beat(ctx)
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}
