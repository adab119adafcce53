package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	// large is the size of a file whose adoption takes long enough to meet a writer in the middle.
	large = 96 << 20
	// meetings is how many times a writer tries.
	meetings = 6
)

// largeFile writes bytes that differ from run to run, and returns them.
func largeFile(t *testing.T, path string, tag uint64) []byte {
	t.Helper()
	content := make([]byte, large)
	rnd := rand.NewChaCha8([32]byte{byte(tag), byte(tag >> 8)})
	if _, err := rnd.Read(content); err != nil {
		t.Fatal(err)
	}
	must(t, "write", os.WriteFile(path, content, 0o644))
	return content
}

// A writer that opens the file in the middle of its adoption, by move and by copy: its bytes are part of what is delivered
// when its open() found the file, and then exactly one attachment is delivered with the final content whole.
func TestWriterMeetsAdoption(t *testing.T) {
	for _, adopt := range []string{"move", "copy"} {
		t.Run(adopt, func(t *testing.T) {
			r := newRig(t, rig.Options{Adopt: adopt, Config: "[log]\nlevel = \"debug\""})
			must(t, "start", r.StartDaemon(t.Context()))
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 2))
			late := 0
			for i := range meetings {
				path := filepath.Join(r.Capture(), fmt.Sprintf("recording-%d.bin", i))
				content := largeFile(t, path, seed+uint64(i))
				<-time.After(300*time.Millisecond + time.Duration(rnd.Int64N(int64(1200*time.Millisecond))))
				tail := fmt.Appendf(nil, "last words %d", i)
				if appendTo(t, path, tail) {
					content = append(content, tail...)
				} else {
					late++
				}
				deliveredWhole(t, r, filepath.Base(path), content)
			}
			log, err := os.ReadFile(r.Log("fieldgwd"))
			must(t, "read log", err)
			t.Logf("%d writers came when the file was in custody already; %d met an adoption under way",
				late, bytes.Count(log, []byte("reason=still_open")))
		})
	}
}

// appendTo opens an existing file and appends; it reports false when there was no such file any more.
func appendTo(t *testing.T, path string, tail []byte) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	must(t, "open for writing", err)
	_, err = f.Write(tail)
	must(t, "append", errors.Join(err, f.Close()))
	return true
}

// deliveredWhole waits until an attachment of that name with exactly that content is delivered. An earlier version of a
// file that stays in place may have been delivered before it was appended to, whole as it was then.
func deliveredWhole(t *testing.T, r *rig.Rig, name string, content []byte) {
	t.Helper()
	sum := sha256.Sum256(content)
	want := hex.EncodeToString(sum[:])
	versions := 0
	must(t, "deliver "+name, rig.Until(t.Context(), 2*time.Minute, "delivery of "+name, func() (bool, error) {
		items, err := r.Truth(t.Context())
		versions = 0
		found := false
		for _, i := range items {
			if strings.HasPrefix(i.Filename.Exact(), strings.TrimSuffix(name, ".bin")) {
				versions++
				found = found || i.SHA256.String() == want && i.DeliveredAt != nil
			}
		}
		return found, err
	}))
	if r.Adopt == "move" && versions != 1 {
		t.Errorf("%s became %d attachments", name, versions)
	}
}

// A program that keeps the file open, pauses much longer than the settle time and goes on writing: nothing is taken while
// it has the file open, and the final content is delivered whole, once.
func TestWriterPausesWithFileOpen(t *testing.T) {
	for _, adopt := range []string{"move", "copy"} {
		t.Run(adopt, func(t *testing.T) {
			r := newRig(t, rig.Options{Adopt: adopt})
			must(t, "start", r.StartDaemon(t.Context()))
			path := filepath.Join(r.Capture(), "interview.bin")
			f, err := os.Create(path)
			must(t, "create", err)
			for part := range 4 {
				_, err = fmt.Fprintf(f, "part %d\n", part)
				must(t, "write", err)
				<-time.After(900 * time.Millisecond)
				if items, err := r.Items(t.Context()); err != nil || len(items) != 0 {
					t.Fatalf("taken while it is open: %d attachments, %v", len(items), err)
				}
			}
			stdout, _, _, err := r.Ctl(t.Context(), "list", "--not-taken")
			must(t, "list", err)
			if !strings.Contains(stdout, "A program still has it open for writing") {
				t.Errorf("the technician is not told why:\n%s", stdout)
			}
			must(t, "close", f.Close())
			deliveredWhole(t, r, "interview.bin", []byte("part 0\npart 1\npart 2\npart 3\n"))
			items, err := r.Items(t.Context())
			if err != nil || len(items) != 1 {
				t.Errorf("%d attachments, %v", len(items), err)
			}
		})
	}
}
