package gate

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/test/damage"
	"github.com/fieldgw/fieldgw/test/rig"
)

var damages = flag.Int("gate.damages", 2, "how many random damages of a queue file, beside those that are always tried")

// wound is one damage of the queue file.
type wound struct {
	name string
	// inflict changes the file, whose layout is known.
	inflict func(t *testing.T, s *scene, l damage.Layout)
	// refused: the daemon must refuse the file. Otherwise it must run, unless either says that it may do the one or the other.
	refused, either bool
	// parked is the name of the only attachment that cannot be delivered, because nothing is left that could restore it.
	parked string
}

// cut shortens the file to a number of bytes that the layout gives.
func cut(name string, length func(damage.Layout) int) wound {
	return wound{name: name, refused: true, inflict: func(t *testing.T, s *scene, l damage.Layout) {
		must(t, "cut", os.Truncate(s.Queue(), int64(length(l))))
	}}
}

// flip changes one bit of the header of a random page of a kind, where it says which page it is and of what kind.
func flip(kind string, rnd *rand.Rand) wound {
	return wound{name: kind + " page flipped", refused: true, inflict: func(t *testing.T, s *scene, l damage.Layout) {
		if len(l.Pages[kind]) == 0 {
			t.Fatalf("the queue has no %s page", kind)
		}
		page := l.Pages[kind][rnd.IntN(len(l.Pages[kind]))]
		flipBit(t, s.Queue(), page*l.PageSize*8+rnd.IntN(80))
	}}
}

// flipMeta changes one bit of the checksummed part of meta pages.
func flipMeta(name string, refused bool, rnd *rand.Rand, which func(damage.Layout) []int) wound {
	return wound{name: name, refused: refused, inflict: func(t *testing.T, s *scene, l damage.Layout) {
		for _, page := range which(l) {
			flipBit(t, s.Queue(), (page*l.PageSize+16)*8+rnd.IntN(48*8))
		}
	}}
}

func flipBit(t *testing.T, path string, bit int) {
	t.Helper()
	damage.Edit(t, path, func(file []byte) []byte {
		file[bit/8] ^= 1 << (bit % 8)
		return file
	})
}

// wounds are the damages to try; rnd chooses pages and bits.
func wounds(rnd *rand.Rand) []wound {
	all := []wound{
		{name: "manifests flipped", inflict: func(t *testing.T, s *scene, _ damage.Layout) {
			for _, name := range []string{interrupted, "paused.jpg", "standing-too.jpg"} {
				damage.Spoil(t, s.Queue(), "manifests", []byte(s.items[name].ID))
			}
		}},
		{name: "one manifest flipped, none travels", parked: "waiting-03.jpg", inflict: func(t *testing.T, s *scene, _ damage.Layout) {
			id := s.items["waiting-03.jpg"].ID
			damage.Spoil(t, s.Queue(), "manifests", []byte(id))
			must(t, "remove", os.Remove(s.manifest(id)))
		}},
		cut("emptied", func(damage.Layout) int { return 0 }),
		cut("cut in a meta page", func(l damage.Layout) int { return l.PageSize + 40 }),
		cut("cut in the middle", func(l damage.Layout) int { return l.Limit / 2 * l.PageSize }),
		cut("cut by a byte", func(l damage.Layout) int { return l.Limit*l.PageSize - 1 }),
		{name: "deleted", refused: true, inflict: func(t *testing.T, s *scene, _ damage.Layout) {
			must(t, "delete", os.Remove(s.Queue()))
		}},
		flipMeta("both meta pages flipped", true, rnd, func(damage.Layout) []int { return []int{0, 1} }),
		flipMeta("newest meta page flipped", true, rnd, func(l damage.Layout) []int { return []int{l.Newest} }),
		flipMeta("older meta page flipped", false, rnd, func(l damage.Layout) []int { return []int{1 - l.Newest} }),
		flip(damage.Freelist, rnd), flip(damage.Branch, rnd), flip(damage.Leaf, rnd),
	}
	for i := range *damages {
		all = append(all, wound{name: fmt.Sprintf("random value %d flipped", i), inflict: func(t *testing.T, s *scene, _ damage.Layout) {
			spoilAny(t, s, rnd)
		}}, wound{name: fmt.Sprintf("random bit %d flipped", i), either: true, inflict: func(t *testing.T, s *scene, l damage.Layout) {
			bit := rnd.IntN(l.Limit * l.PageSize * 8)
			t.Logf("bit %d of byte %d in page %d", bit%8, bit/8%l.PageSize, bit/8/l.PageSize)
			flipBit(t, s.Queue(), bit)
		}})
	}
	return all
}

// spoilAny damages one value of a random bucket.
func spoilAny(t *testing.T, s *scene, rnd *rand.Rand) {
	buckets := queue.Schema().Buckets
	for {
		bucket := buckets[rnd.IntN(len(buckets))]
		if keys := damage.Keys(t, s.Queue(), bucket); len(keys) > 0 {
			key := keys[rnd.IntN(len(keys))]
			t.Logf("bucket %s, key %q", bucket, key)
			damage.Spoil(t, s.Queue(), bucket, key)
			return
		}
	}
}

// Damage of the queue file costs nothing but time. One value that was hit is that item's damage: restored from the manifest
// that travels, or named and parked alone while everything else goes on. A file that cannot be trusted is refused, in words
// that name the command which mends it; that command makes the queue anew and keeps the damaged file. Either way everything
// is delivered once, confirmed bytes are not sent again, and what a person decided stands.
func TestDamagedQueue(t *testing.T) {
	rnd := seeded(t)
	s := newScene(t)
	for _, w := range wounds(rnd) {
		t.Run(w.name, func(t *testing.T) { s.suffer(t, w) })
	}
}

func seeded(t *testing.T) *rand.Rand {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -gate.seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 3))
}

func (s *scene) suffer(t *testing.T, w wound) {
	s.restore(t)
	w.inflict(t, s, damage.Pages(t, s.Queue()))
	damaged, err := os.ReadFile(s.Queue())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	must(t, "start server", s.StartServer(t.Context()))
	defer func() { must(t, "stop server", s.StopServer()) }()
	must(t, "start", s.StartDaemon(t.Context()))
	defer func() { must(t, "stop", s.StopDaemon()) }()
	s.drop(t, s.Capture(), "later.jpg", 100)
	s.drop(t, s.archive, "later-standing.jpg", 101)
	var status control.Status
	must(t, "status", s.CtlJSON(t.Context(), &status, "status"))
	if refused := status.Degraded != nil; refused != w.refused && !w.either {
		t.Fatalf("refused is %v: %v", refused, status.Degraded)
	} else if refused {
		s.refuses(t, damaged)
		s.rebuild(t, damaged)
		must(t, "start", s.StartDaemon(t.Context()))
	}
	s.deliversOnce(t, w)
}

// refuses checks what a technician meets before a queue that cannot be used, and stops the daemon.
func (s *scene) refuses(t *testing.T, damaged []byte) {
	t.Helper()
	screen := s.ctl(t, 0, "status")
	for _, want := range []string{"DAMAGED", s.Queue(), "sudo fieldgwd rebuild", "No file is taken"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the status does not say %q:\n%s", want, screen)
		}
	}
	s.ctl(t, 8, "status", "--check")
	for _, args := range [][]string{{"list"}, {"pause"}, {"check"}, {"submit", "--record", record, files[0].Path}} {
		if said := s.ctl(t, 6, args...); !strings.Contains(said, "fieldgwd rebuild") {
			t.Errorf("fieldgwctl %s: %s", args[0], said)
		}
	}
	for _, verb := range []string{"rebuild", "check"} {
		said := s.offline(t, 1, verb)
		if want := fmt.Sprintf("held by fieldgwd, pid %d", s.Daemon().PID()); !strings.Contains(said, want) || !strings.Contains(said, "stop the daemon first") {
			t.Errorf("fieldgwd %s beside a daemon: %s", verb, said)
		}
	}
	must(t, "stop", s.StopDaemon())
	said := s.offline(t, 1, "check")
	if !strings.Contains(said, "fieldgwd rebuild") || !strings.Contains(said, s.Queue()) {
		t.Errorf("fieldgwd check: %s", said)
	}
	t.Logf("said: %s", said)
	for _, path := range []string{filepath.Join(s.Capture(), "later.jpg"), filepath.Join(s.archive, "later-standing.jpg")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a source was touched: %v", err)
		}
	}
	if now, err := os.ReadFile(s.Queue()); !bytes.Equal(now, damaged) || err != nil && damaged != nil {
		t.Errorf("the damaged file was touched: %v", err)
	}
}

// rebuild makes the queue anew; the damaged file must lie beside it as it was.
func (s *scene) rebuild(t *testing.T, damaged []byte) {
	t.Helper()
	said := s.offline(t, 0, "rebuild")
	t.Logf("rebuild said:\n%s", said)
	kept, err := filepath.Glob(s.Queue() + ".damaged-*")
	must(t, "look for the old file", err)
	if damaged == nil {
		if len(kept) != 0 {
			t.Errorf("kept: %v", kept)
		}
		return
	}
	if len(kept) != 1 || !strings.Contains(said, kept[0]) {
		t.Fatalf("the old file is kept as %v", kept)
	}
	if data, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(data, damaged) {
		t.Errorf("the old file was changed: %v", err)
	}
	s.offline(t, 0, "check", "--deep")
	if again := s.offline(t, 1, "rebuild"); !strings.Contains(again, "nothing was rebuilt") {
		t.Errorf("a second rebuild: %s", again)
	}
}

// deliversOnce restores the link and holds what follows against the scene.
func (s *scene) deliversOnce(t *testing.T, w wound) {
	t.Helper()
	held := map[string]attachment.Condition{"paused.jpg": attachment.ShownPaused, "empty.jpg": attachment.ShownAttention}
	if w.parked != "" {
		held[w.parked] = attachment.ShownAttention
	}
	before := s.Link.BytesUp()
	s.Link.Restore()
	all := len(s.items) + 2
	s.until(t, "delivery", func(items []control.Item) bool {
		return len(items) == all && rig.Delivered(items) == all-len(held)
	})
	s.accounts(t, held)
	sent, owed := s.Link.BytesUp()-before, int64(all)*perItem
	for name, i := range s.items {
		if _, stays := held[name]; !stays && i.Condition != attachment.ShownDelivered {
			owed += i.Length
		}
	}
	if sent > owed-s.confirmed {
		t.Errorf("%d bytes were sent where %d were owed, of which %d were confirmed", sent, owed, s.confirmed)
	}
	t.Logf("%d bytes sent; %d of payload were not confirmed yet", sent, owed-int64(all)*perItem-s.confirmed)

	s.ctl(t, 0, "resume", string(s.items["paused.jpg"].ID))
	s.until(t, "delivery of what was paused", func([]control.Item) bool {
		return s.find(t, "paused.jpg").Condition == attachment.ShownDelivered
	})
	delete(held, "paused.jpg")
	s.accounts(t, held)
	s.checks(t, w)
}

// accounts holds device and server against the scene: nothing more, nothing less, nothing else.
func (s *scene) accounts(t *testing.T, held map[string]attachment.Condition) {
	t.Helper()
	items, err := s.Truth(t.Context())
	must(t, "truth", err)
	registered, err := s.Registered(t.Context())
	must(t, "ask the server", err)
	if len(items) != len(s.items)+2 || len(registered) != len(items)-len(held) {
		t.Errorf("%d on the device and %d on the server, want %d and %d", len(items), len(registered), len(s.items)+2, len(s.items)+2-len(held))
	}
	for name, was := range s.items {
		got, there := registered[string(was.ID)]
		if _, stays := held[name]; stays == there {
			t.Errorf("%s: on the server is %v", name, there)
		}
		if there && got.Receipt.SHA256 != was.SHA256.String() {
			t.Errorf("%s: registered with %s, captured %s", name, got.Receipt.SHA256, was.SHA256)
		}
	}
	for _, i := range items {
		if want, ok := held[i.Filename.Exact()]; ok && i.Condition != want {
			t.Errorf("%s is %s, want %s", i.Filename.Printable(), i.Condition, want)
		}
	}
	contents := map[string]bool{}
	for id, a := range registered {
		stored, err := s.ContentDigest(t.Context(), id)
		if err != nil || stored != a.Receipt.SHA256 || contents[stored] {
			t.Errorf("%s: stored %s, registered %s, there already %v, %v", id, stored, a.Receipt.SHA256, contents[stored], err)
		}
		contents[stored] = true
	}
}

// checks lets the running daemon repair what a damaged value left, and expects nothing to be left then but the parked one.
func (s *scene) checks(t *testing.T, w wound) {
	t.Helper()
	stdout, stderr, code, err := s.Ctl(t.Context(), "check", "--deep")
	if err != nil || code != 0 && code != 8 || code == 8 && w.refused {
		t.Fatalf("check: exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if code == 0 && w.parked == "" {
		return
	}
	t.Logf("check said:\n%s%s", stdout, stderr)
	if w.parked == "" {
		s.ctl(t, 0, "check", "--deep", "--repair")
		return
	}
	status := s.ctl(t, 0, "status")
	if show := s.ctl(t, 0, "show", string(s.items[w.parked].ID)); !strings.Contains(show, "manifest_damaged") || !strings.Contains(status, "2 files need a person") {
		t.Errorf("what is parked is not shown:\n%s%s", show, status)
	}
	if said := s.ctl(t, 8, "check", "--deep", "--repair"); !strings.Contains(said, control.ShortID(s.items[w.parked].ID)) {
		t.Errorf("the check does not name what is parked:\n%s", said)
	}
}
