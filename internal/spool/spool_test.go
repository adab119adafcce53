package spool

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

func newSpool(t *testing.T, fsys *durable.FS) *Spool {
	t.Helper()
	s, err := Open(fsys, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put secures a payload with its manifest and returns its ID and fingerprint.
func put(t *testing.T, s *Spool, content []byte) (attachment.ID, attachment.Fingerprint) {
	t.Helper()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.CreateStaged(id)
	if err != nil {
		t.Fatal(err)
	}
	h := attachment.NewHasher()
	if _, err := CopyHashing(context.Background(), f, bytes.NewReader(content), h, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	sum := h.Sum()
	tr := attachment.Travelling{Segments: sum.Segments, Manifest: attachment.Manifest{
		Version: attachment.ManifestVersion, ID: id, State: attachment.Captured, Filename: attachment.NameOf("a.jpg"), Length: sum.Length,
		HashAlgorithm: attachment.HashAlgorithm, SHA256: sum.SHA256, Role: attachment.RoleOriginal, AdoptedAt: time.Unix(9, 0).UTC(),
	}}
	if err := errors.Join(s.WriteManifest(&tr), s.Secure(id)); err != nil {
		t.Fatal(err)
	}
	return id, sum
}

// Everything below the spool is closed to other users.
func TestClosedToOthers(t *testing.T) {
	s := newSpool(t, durable.OS())
	id, _ := put(t, s, []byte("x"))
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == s.dir {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", strings.TrimPrefix(path, s.dir), info.Mode())
		}
		return err
	})
	if err != nil || id.Shard() == "" {
		t.Fatal(err)
	}
}

// Any flipped bit and any other length is found before the bytes are handed on; the other segments stay usable.
func TestPayloadCheck(t *testing.T) {
	s := newSpool(t, durable.OS())
	content := bytes.Repeat([]byte("0123456789abcdef"), (2*attachment.SegmentSize+5000)/16)
	id, sum := put(t, s, content)
	path := s.Path(Payloads, id)
	spoiled := bytes.Clone(content)
	spoiled[attachment.SegmentSize+7] ^= 1
	if err := os.WriteFile(path, spoiled, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := s.OpenPayload(id, sum)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, c := range []struct {
		off, n int64
		bad    bool
	}{
		{0, 100, false}, {0, attachment.SegmentSize, false}, {attachment.SegmentSize - 1, 2, true},
		{2 * attachment.SegmentSize, 4000, false}, {0, sum.Length, true}, {sum.Length, 0, false}, {sum.Length, 1, true}, {-1, 1, true},
	} {
		if err := p.Check(ctx, c.off, c.n); errors.Is(err, ErrChanged) != c.bad {
			t.Errorf("%d bytes at %d: %v", c.n, c.off, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, sum.Length-1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenPayload(id, sum); !errors.Is(err, ErrChanged) {
		t.Errorf("shorter: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenPayload(id, sum); !errors.Is(err, ErrMissing) {
		t.Errorf("gone: %v", err)
	}
}

// A move to the delivered copies that is cut short at any operation is finished by calling it again.
func TestDeliverIsRepeatable(t *testing.T) {
	for n := 0; ; n++ {
		count, reached := 0, false
		armed := false
		fsys := durable.Hooked(func(durable.Call) error {
			defer func() {
				if armed {
					count++
				}
			}()
			if armed && count >= n {
				reached = true
				return unix.EIO
			}
			return nil
		})
		s := newSpool(t, fsys)
		id, sum := put(t, s, []byte("payload"))
		armed = true
		err := s.Deliver(id)
		armed = false
		if reached == (err == nil) {
			t.Fatalf("operation %d: reached %v, %v", n, reached, err)
		}
		again := &Spool{fs: durable.OS(), dir: s.dir}
		if err := again.Deliver(id); err != nil {
			t.Fatalf("again after operation %d: %v", n, err)
		}
		p, err := again.OpenPayload(id, sum)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Check(context.Background(), 0, sum.Length), p.Close()); err != nil {
			t.Error(err)
		}
		if _, err := again.ReadManifest(Delivered, id); err != nil {
			t.Error(err)
		}
		if area, found, err := again.Locate(id); area != Delivered || !found || err != nil {
			t.Errorf("lies in %s, %v, %v", area, found, err)
		}
		if !reached {
			return
		}
	}
}

// Scan names what is there, removes only its own temporary files, and leaves strangers alone.
func TestScan(t *testing.T) {
	s := newSpool(t, durable.OS())
	id, _ := put(t, s, []byte("x"))
	strangers := []string{
		filepath.Join(s.dir, "spool", "payload", "README"), filepath.Join(s.dir, "spool", "staging", "lost+found"),
		filepath.Join(s.shardDir(Payloads, id), "note.txt"),
	}
	for _, path := range strangers {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	temp := filepath.Join(s.shardDir(Payloads, id), "."+string(id)+".manifest.fieldgw-tmp-00")
	if err := os.WriteFile(temp, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found, strays := 0, 0
	err := s.Scan(func(f Found) error {
		switch {
		case f.Stray != "":
			strays++
		case f.ID == id && f.Area == Payloads && f.Payload && f.Manifest:
			found++
		default:
			t.Errorf("found %+v", f)
		}
		return nil
	})
	if err != nil || found != 1 || strays != len(strangers) {
		t.Errorf("%d found, %d strays, %v", found, strays, err)
	}
	if _, err := os.Lstat(temp); !durable.IsNotExist(err) {
		t.Errorf("temporary file: %v", err)
	}
	for _, path := range strangers {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// Decisions and receipts come back as they were written; a lifted decision is gone.
func TestNotes(t *testing.T) {
	s := newSpool(t, durable.OS())
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.WriteReceipt(id, []byte("{}")), s.WriteDecision("pause", []byte("why"))); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(s.receiptsDir(), string(id))); err != nil || string(data) != "{}" {
		t.Errorf("%q, %v", data, err)
	}
	for _, want := range []int{1, 0} {
		n := 0
		err := s.Decisions(func(name string, data []byte) error {
			n++
			if name != "pause" || string(data) != "why" {
				t.Errorf("%q %q", name, data)
			}
			return nil
		})
		if err != nil || n != want {
			t.Errorf("%d decisions, %v", n, err)
		}
		if err := s.RemoveDecision("pause"); err != nil {
			t.Error(err)
		}
	}
}
