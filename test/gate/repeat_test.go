package gate

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/rig"
)

// evidence is a file large enough for its bytes to stand out on the link.
const evidence = 6 << 20

// A file dropped again in its record is an attachment of its own that says what it repeats, and its bytes cross the link
// once. A file that stays and is touched, renamed or seen after a restart is nothing new.
func TestRepetitionCrossesTheLinkOnce(t *testing.T) {
	for _, adopt := range []string{"move", "copy"} {
		t.Run(adopt, func(t *testing.T) {
			r := newRig(t, rig.Options{Adopt: adopt})
			must(t, "start", r.StartDaemon(t.Context()))
			content := make([]byte, evidence)
			_, err := rand.NewChaCha8([32]byte{7}).Read(content)
			must(t, "make content", err)
			first := filepath.Join(r.Capture(), record, "DSC_0001.JPG")
			must(t, "make directory", os.MkdirAll(filepath.Dir(first), 0o755))
			must(t, "drop", os.WriteFile(first, content, 0o644))
			a := allDelivered(t, r, 1)[0]

			sent := r.Link.BytesUp()
			must(t, "drop again", os.WriteFile(filepath.Join(r.Capture(), record, "again.JPG"), content, 0o644))
			b := allDelivered(t, r, 2)[1]
			if up := r.Link.BytesUp() - sent; b.Repeats != a.ID || a.Repeats != "" || up > evidence/20 {
				t.Errorf("repeats %q, want %s; %d bytes crossed the link", b.Repeats, a.ID, up)
			}
			stdout, _, _, err := r.Ctl(t.Context(), "show", string(b.ID))
			must(t, "show", err)
			if !strings.Contains(stdout, "repeats      "+string(a.ID)) {
				t.Errorf("show does not say what it repeats:\n%s", stdout)
			}
			if adopt == "copy" {
				renamed := filepath.Join(r.Capture(), record, "pump-room.JPG")
				must(t, "rename", os.Rename(first, renamed))
				must(t, "touch", os.Chtimes(renamed, time.Now(), time.Now().Add(-time.Hour)))
				seenAgain(t, r, a.ID)
				must(t, "restart", r.StopDaemon())
				must(t, "restart", r.StartDaemon(t.Context()))
			}
			// What comes last is taken last: nothing came of the others before it.
			must(t, "drop another", os.WriteFile(filepath.Join(r.Capture(), record, "other.JPG"), content[:1000], 0o644))
			allDelivered(t, r, 3)
			if up := r.Link.BytesUp() - sent; up > evidence/10 {
				t.Errorf("%d bytes crossed the link in the end", up)
			}
		})
	}
}

// A watch that skips repetitions leaves them where they are, with the reason and what they repeat.
func TestRepetitionIsSkipped(t *testing.T) {
	r := newRig(t, rig.Options{})
	config, err := os.ReadFile(r.Path("device", "fieldgw.toml"))
	must(t, "read configuration", err)
	config = bytes.Replace(config, []byte("adopt = "), []byte("repeated = \"skip\"\nadopt = "), 1)
	must(t, "write configuration", os.WriteFile(r.Path("device", "fieldgw.toml"), config, 0o600))
	must(t, "start", r.StartDaemon(t.Context()))
	dir := filepath.Join(r.Capture(), record)
	must(t, "make directory", os.MkdirAll(dir, 0o755))
	must(t, "drop", os.WriteFile(filepath.Join(dir, "a.jpg"), []byte("the same"), 0o644))
	a := allDelivered(t, r, 1)[0]
	again := filepath.Join(dir, "b.jpg")
	must(t, "drop again", os.WriteFile(again, []byte("the same"), 0o644))
	for range 2 {
		var page control.Page[control.NotTaken]
		must(t, "wait", rig.Until(t.Context(), time.Minute, "the repetition is listed", func() (bool, error) {
			err := r.CtlJSON(t.Context(), &page, "list", "--not-taken")
			return len(page.Items) == 1 && page.Items[0].Waiting.Reason == attachment.NotTakenRepeated, err
		}))
		if n := page.Items[0]; n.Path.Exact() != again || !strings.Contains(n.Waiting.Message, string(a.ID)) {
			t.Errorf("%+v", n)
		}
		must(t, "restart", r.StopDaemon())
		must(t, "restart", r.StartDaemon(t.Context()))
	}
	if _, err := os.Stat(again); err != nil {
		t.Error(err)
	}
	allDelivered(t, r, 1)
}

// allDelivered waits until exactly n attachments are delivered and returns them in the order of adoption.
func allDelivered(t *testing.T, r *rig.Rig, n int) (items []control.Item) {
	t.Helper()
	must(t, "delivery", rig.Until(t.Context(), time.Minute, "delivery", func() (done bool, err error) {
		items, err = r.Truth(t.Context())
		for _, i := range items {
			done = i.DeliveredAt != nil
			if !done {
				break
			}
		}
		return done && len(items) >= n, err
	}))
	if len(items) != n {
		t.Fatalf("%d attachments, want %d", len(items), n)
	}
	return items
}

// seenAgain waits until the journal of an attachment says that its source was seen under another name.
func seenAgain(t *testing.T, r *rig.Rig, id attachment.ID) {
	t.Helper()
	must(t, "recognition", rig.Until(t.Context(), time.Minute, "seen again", func() (bool, error) {
		var d control.ItemDetail
		err := r.CtlJSON(t.Context(), &d, "show", string(id))
		return len(d.Journal) > 0 && d.Journal[len(d.Journal)-1].Event == attachment.EventSeenAgain, err
	}))
}
