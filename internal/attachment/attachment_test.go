package attachment

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The transition table is the one that people read: testdata/transitions.golden, which ARCHITECTURE.md shows too.
func TestTransitionTableIsGolden(t *testing.T) {
	const golden = "testdata/transitions.golden"
	got := Table()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("table differs from %s (write it anew with -update):\n%s", golden, got)
	}
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, want) {
		t.Error("ARCHITECTURE.md does not show the table of testdata/transitions.golden")
	}
}

// Evidence can end only in reconciled, or in released after reconciled or by a person's discard; nothing else is terminal
// for it, and delivered is shown from nowhere else.
func TestOnlyReceiptsAndDecisionsEndEvidence(t *testing.T) {
	for _, from := range States() {
		for _, event := range Events() {
			for _, facts := range []Facts{{}, {Prepared: true}, {Prepared: true, Verified: true}} {
				to, err := Next(from, event, facts)
				if err != nil {
					if !errors.Is(err, ErrTransition) || to != from {
						t.Errorf("%s in %s: state %s, error %v", event, from, to, err)
					}
					continue
				}
				leaves := from.Undelivered() && !to.Undelivered()
				allowed := event == EventRegistered || event == EventAccepted || event == EventDiscarded || event == EventCancelled
				if leaves && !allowed {
					t.Errorf("%s takes undelivered %s to %s", event, from, to)
				}
				if to == Reconciled && from != Reconciled && event != EventRegistered && event != EventAccepted {
					t.Errorf("%s makes %s reconciled without a receipt", event, from)
				}
				if event == EventDiscarded && from != Attention && from != Review {
					t.Errorf("%s discards without attention or review", from)
				}
			}
		}
	}
}

// After a person's decision the state is computed from what is durable, not from what was before.
func TestBackIsComputed(t *testing.T) {
	cases := map[Facts]State{{}: Captured, {Prepared: true}: Ready, {Prepared: true, Verified: true}: Uploaded}
	for facts, want := range cases {
		for event, from := range map[Event]State{EventRetried: Attention, EventPrepared: Attention, EventKept: Review} {
			if got, err := Next(from, event, facts); err != nil || got != want {
				t.Errorf("%s in %s with %+v: %s, %v; want %s", event, from, facts, got, err, want)
			}
		}
	}
}

func sample(t *testing.T) *Manifest {
	t.Helper()
	id, err := NewID()
	if err != nil {
		t.Fatal(err)
	}
	return &Manifest{
		Version: ManifestVersion, ID: id, State: Captured, Filename: NameOf("bad\xffname\n.jpg"), MediaType: "image/jpeg",
		Length: 9, HashAlgorithm: HashAlgorithm, CapturedAt: time.Unix(5, 0).UTC(), AdoptedAt: time.Unix(6, 0).UTC(),
		Role: RoleOriginal, Structure: StructureUnchecked, Custody: CustodyMove,
		Parent: Parent{LocalID: NameOf("insp-7")},
	}
}

// Every state has exactly one condition, and only reconciled (or a copy released after it) shows as delivered.
func TestConditionOfEveryState(t *testing.T) {
	for _, state := range States()[1:] {
		m := sample(t)
		m.State = state
		if got := m.Condition(); (got == ShownDelivered) != (state == Reconciled || state == Released) {
			t.Errorf("%s is shown as %s", state, got)
		}
		m.Paused = true
		if got := m.Condition(); (got == ShownDelivered) != (state == Reconciled || state == Released) {
			t.Errorf("paused %s is shown as %s", state, got)
		}
	}
	m := sample(t)
	m.State, m.Discard = Released, &Decision{}
	if m.Condition() != ShownDiscarded || m.Condition().Owed() {
		t.Error("discarded evidence is shown as", m.Condition())
	}
	m.State, m.Discard, m.Delivery.Grade = Uploaded, nil, "length-only"
	if m.Condition() != ShownSent || !m.Condition().Owed() {
		t.Error("a receipt of lower grade is shown as", m.Condition())
	}
}

// A travelling manifest comes back as it went, raw name bytes included; any flipped bit is refused.
func TestTravellingRoundTripAndDamage(t *testing.T) {
	m := sample(t)
	h := NewHasher()
	if _, err := h.Write([]byte("some data")); err != nil {
		t.Fatal(err)
	}
	sum := h.Sum()
	m.SHA256 = sum.SHA256
	data, err := (&Travelling{Manifest: *m, Segments: sum.Segments}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTravelling(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Manifest.Filename.Exact() != "bad\xffname\n.jpg" || got.Manifest.SHA256 != m.SHA256 || len(got.Segments) != 1 {
		t.Errorf("came back as %+v", got)
	}
	for i := range data {
		spoiled := bytes.Clone(data)
		spoiled[i] ^= 0x10
		if _, err := DecodeTravelling(spoiled); !errors.Is(err, ErrBadManifest) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
}

// The segment digests do not depend on how the bytes are cut into writes.
func TestHasherSegments(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), (2*SegmentSize+4096)/16)
	whole := NewHasher()
	if _, err := whole.Write(data); err != nil {
		t.Fatal(err)
	}
	parts := NewHasher()
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 100_003)
		if _, err := parts.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	a, b := whole.Sum(), parts.Sum()
	if !a.Equal(b) || len(a.Segments) != SegmentCount(a.Length) || len(a.Segments) != 3 {
		t.Fatalf("%d and %d segments for %d bytes", len(a.Segments), len(b.Segments), a.Length)
	}
	for i := range a.Segments {
		if a.Segments[i] != b.Segments[i] {
			t.Errorf("segment %d differs", i)
		}
	}
	if empty := NewHasher().Sum(); len(empty.Segments) != 0 || empty.Length != 0 {
		t.Errorf("empty payload: %+v", empty)
	}
}

// Nothing foreign reaches a terminal as a control sequence, and the text stays one line.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"photo 1.jpg":          "photo 1.jpg",
		"Prüfung-日本.pdf":       "Prüfung-日本.pdf",
		"a\nb\x1b[31mred":      `a\nb\x1b[31mred`,
		"\u202egpj.exe":        `\u202egpj.exe`,
		`back\slash`:           `back\\slash`,
		"zero\u200bwidth\x00x": `zero\u200bwidth\x00x`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// Every code has a sentence, a remedy and a person; no code is named twice.
func TestEveryCodeIsExplained(t *testing.T) {
	seen := map[Code]bool{}
	for _, a := range Codes() {
		if seen[a.Code] {
			t.Errorf("%s stands twice", a.Code)
		}
		seen[a.Code] = true
		if !strings.HasSuffix(a.Sentence, ".") || !strings.HasSuffix(a.Remedy, ".") || a.Who == "" || a.Kind == "" {
			t.Errorf("%s: %+v", a.Code, a)
		}
	}
	source, err := os.ReadFile("code.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(source)) {
		_, value, ok := strings.Cut(line, " Code = \"")
		if code := Code(strings.TrimRight(value, "\"\n")); ok && !seen[code] {
			t.Errorf("%s has no advice", code)
		}
	}
	if a := Explain("no_such"); a.Remedy == "" || a.Code != "no_such" {
		t.Errorf("unknown code: %+v", a)
	}
}

// Only the canonical text of a version 7 UUID is an ID: it is used in file names.
func TestParseID(t *testing.T) {
	id, err := NewID()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseID(string(id)); err != nil || got != id || len(id.Shard()) != 2 {
		t.Errorf("%s: %s, %v", id, got, err)
	}
	for _, bad := range []string{"", "../../etc", strings.ToUpper(string(id)), "{" + string(id) + "}", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
		if _, err := ParseID(bad); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzDecodeTravelling(f *testing.F) {
	f.Add([]byte("{}\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := DecodeTravelling(data)
		if err != nil {
			return
		}
		if _, err := got.Encode(); err != nil {
			t.Errorf("decoded and cannot be encoded: %v", err)
		}
	})
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2Jb")
	f.Fuzz(func(t *testing.T, s string) {
		if got := Printable(NameOf(s).Text); strings.ContainsAny(got, "\n\r\x1b\x00\x07") {
			t.Errorf("%q", got)
		}
		if NameOf(s).Exact() != s {
			t.Error("bytes of the name changed")
		}
	})
}
