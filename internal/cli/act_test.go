package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

func short(n int) string { return control.ShortID(fixedID(n)) }

// Decisions on several files: what was done, what was refused and why, with the reason and the caller in the journal.
func TestAct(t *testing.T) {
	g := newGateway(t)
	for n := 1; n <= 3; n++ {
		g.Add(waiting(file(n, fmt.Sprintf("%d.jpg", n), 1000, attachment.Ready, time.Minute), attachment.HoldQueued))
	}
	g.Add(delivered(file(4, "4.jpg", 1000, attachment.Reconciled, time.Hour), time.Minute))
	done := delivered(file(5, "5.jpg", 1000, attachment.Reconciled, time.Hour), time.Minute)
	done.Manifest.Parent.LocalID = attachment.NameOf("INS-120")
	g.Add(done)
	g.stdin = short(1) + "\n\n  " + short(2) + "  \n"
	g.golden(t, "act",
		"pause --dry-run "+short(1), "list --condition paused", "pause --reason rain "+short(1)+" "+short(3),
		"resume -", "retry "+short(1)+" ffff0000 "+short(4), "retry "+short(4), "retry 0197f3a2", "retry ffff0000 -o json",
		"retry --all", "pause --record INS-117 --quiet", "pause --record INS-120", "pause --record INS-118", "resume --all -o json",
		"pause", "status", "pause --dry-run", "resume --reason done", "resume -o yaml")
	var d control.ItemDetail
	if err := json.Unmarshal([]byte(g.run(t, "show", short(3), "-o", "json").out), &d); err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, j := range d.Journal[1:] {
		events = append(events, string(j.Event)+" "+j.Reason)
		if !strings.HasPrefix(j.By, fmt.Sprintf("uid %d", os.Getuid())) {
			t.Errorf("journal row by %q", j.By)
		}
	}
	if got := strings.Join(events, ","); got != "paused rain,retried ,paused ,resumed " {
		t.Errorf("journal: %s", got)
	}
	for _, by := range g.Callers() {
		if by.UID != uint32(os.Getuid()) || by.PID != int32(os.Getpid()) {
			t.Errorf("caller %+v", by)
		}
	}
}

// More IDs than fit into one request are sent in several and reported as one.
func TestActInBatches(t *testing.T) {
	g := newGateway(t)
	var ids strings.Builder
	for n := range control.MaxActionIDs + 5 {
		g.Add(file(n+1, "x.jpg", 1, attachment.Ready, time.Minute))
		fmt.Fprintln(&ids, fixedID(n+1))
	}
	g.stdin = ids.String()
	r := g.run(t, "pause", "-", "-o", "json")
	var out control.Outcome
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != exitDone {
		t.Fatalf("%v, %d, %s", err, r.code, r.err)
	}
	if out.Done != control.MaxActionIDs+5 || len(out.Results) != control.MaxResults || !out.Cut || len(g.Callers()) != 2 {
		t.Errorf("%d done, %d results, cut %v, %d requests", out.Done, len(out.Results), out.Cut, len(g.Callers()))
	}
	if r := g.run(t, "resume", "--all"); r.code != exitDone || strings.Count(r.out, "resumed") != control.MaxResults || !strings.Contains(r.err, "In all: 1,005 files") {
		t.Errorf("%d: %d lines, %s", r.code, strings.Count(r.out, "\n"), r.err)
	}
}

// A long list is followed through all its pages, in every form, and nothing is lost or repeated between them.
func TestListPages(t *testing.T) {
	g := newGateway(t)
	const n = 2*control.MaxPage + 7
	for i := range n {
		g.Add(file(i+1, fmt.Sprintf("%d.jpg", i), 1000, attachment.Ready, time.Minute))
	}
	r := g.run(t, "list")
	if got := strings.Count(r.out, "\n"); got != n+1 || !strings.Contains(r.err, "2,007 files, 2.0 MB") {
		t.Errorf("%d lines, %s", got, r.err)
	}
	var document struct {
		Schema string         `json:"schema"`
		Items  []control.Item `json:"items"`
	}
	r = g.run(t, "list", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &document); err != nil || document.Schema != control.SchemaItemList {
		t.Fatalf("%v, %q", err, document.Schema)
	}
	seen := map[attachment.ID]bool{}
	for _, i := range document.Items {
		seen[i.ID] = true
	}
	if len(seen) != n || len(document.Items) != n {
		t.Errorf("%d items, %d different", len(document.Items), len(seen))
	}
}

// Submitted files are taken with their bytes and names, stay where they are, and the answer says what will happen.
func TestSubmit(t *testing.T) {
	g := newGateway(t)
	dir := t.TempDir()
	var paths []string
	for name, content := range map[string]string{"a.jpg": "aaa", "b\n\xff.pdf": "", "c.txt": "c"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	r := g.run(t, append([]string{"submit", "--record", "INS\x1b-9"}, paths...)...)
	if r.code != exitDone || !strings.HasPrefix(r.out, "ID ") || strings.Contains(r.out+r.err, "\x1b") || !utf8.ValidString(r.out) || strings.Count(r.out, "\n") != 4 {
		t.Fatalf("%+v", r)
	}
	if want := "Secured for record INS\\x1b-9: 3 files, 4 B. They will be delivered; the originals stay where they are.\n"; r.err != want {
		t.Errorf("message %q", r.err)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the original: %v", err)
		}
	}
	page, err := g.List(t.Context(), control.ListQuery{Limit: 10})
	if err != nil || len(page.Items) != 3 {
		t.Fatalf("%v, %v", page, err)
	}
	for _, i := range page.Items {
		d, err := g.Get(t.Context(), i.ID)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, i.Filename.Exact()))
		if err != nil || int64(len(content)) != i.Length || d.Source.Path.Exact() != filepath.Join(dir, i.Filename.Exact()) {
			t.Errorf("%+v, %v", i, err)
		}
		if i.Parent.LocalID.Exact() != "INS\x1b-9" || i.CapturedAt.IsZero() {
			t.Errorf("%+v", i)
		}
	}
	if r := g.run(t, "submit", "--record", "INS-9", paths[0]); !strings.HasSuffix(r.err, " B. It will be delivered; the original stays where it is.\n") {
		t.Errorf("message %q", r.err)
	}
	r = g.run(t, "submit", "--record", "INS-9", "--quiet", paths[0])
	if _, err := attachment.ParseID(strings.TrimSpace(r.out)); err != nil || r.err != "" {
		t.Errorf("%+v", r)
	}
	r = g.run(t, "submit", "--record", "INS-9", "-o", "json", paths[0])
	var result control.SubmissionResult
	if err := json.Unmarshal([]byte(r.out), &result); err != nil || len(result.Items) != 1 || result.Schema != control.SchemaSubmission {
		t.Errorf("%v, %+v", err, r)
	}
}
