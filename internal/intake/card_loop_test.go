package intake

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/spool"
)

var (
	cardRuns = flag.Int("intake.cards", 6, "how many times a real card is pulled on each filesystem")
	cardSeed = flag.Uint64("intake.cardseed", 0, "pull the card as this seed says, once")
)

// card is a filesystem in a file, mounted through a loop device.
type card struct {
	t               *testing.T
	image, at, kind string
	files           map[string][]byte
}

// newCard makes a card with pictures that its name decides, and mounts it.
func newCard(t *testing.T, kind, image, at, name string) *card {
	t.Helper()
	c := &card{t: t, image: image, at: at, kind: kind, files: map[string][]byte{}}
	size := map[string]int64{"xfs": 320 << 20}[kind]
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, max(size, 24<<20))); err != nil {
		t.Fatal(err)
	}
	c.run("mkfs."+kind, slices.Concat(map[string][]string{"ext4": {"-q", "-F"}, "xfs": {"-q"}}[kind], []string{image})...)
	c.plug()
	for i := range 3 {
		content := make([]byte, 1<<20+i*700_000)
		if _, err := rand.NewChaCha8([32]byte{byte(i), name[0]}).Read(content); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(at, "insp-7", fmt.Sprintf("DSC_%04d.JPG", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
		c.files[path] = content
	}
	c.pull()
	return c
}

func (c *card) run(name string, args ...string) {
	c.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// plug mounts the card with nothing of it in the cache.
func (c *card) plug() {
	c.t.Helper()
	options := map[string]string{"xfs": "loop,nouuid"}[c.kind]
	c.run("mount", "-o", cmp.Or(options, "loop"), "-t", c.kind, c.image, c.at)
}

// pull takes the card out of the tree at once; what has files of it open keeps them (umount2(2), MNT_DETACH).
func (c *card) pull() {
	if err := unix.Unmount(c.at, unix.MNT_DETACH); err != nil {
		c.t.Errorf("pull: %v", err)
	}
}

// tear makes every further access to the medium an I/O error, and returns how to mend it: what the medium held then.
func (c *card) tear() (mend func()) {
	held, err := os.ReadFile(c.image)
	if err == nil {
		err = os.Truncate(c.image, 0)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	loop, err := exec.Command("losetup", "-n", "-O", "NAME", "-j", c.image).Output()
	if err != nil {
		c.t.Fatal(err)
	}
	c.run("losetup", "-c", strings.TrimSpace(string(loop)))
	return func() {
		// A file of its own: the torn one is the medium until its last user is gone.
		fresh := c.image + ".mended"
		if err := errors.Join(os.WriteFile(fresh, held, 0o600), os.Rename(fresh, c.image)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A real card is pulled, torn or changed at a random moment of its capture by move. Nothing is lost, nothing half is left,
// the other card's files are not touched, and after the card came back each of its pictures is there once and gone from it.
func TestCardPulledAtAnyMoment(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting needs root")
	}
	for _, kind := range []string{"ext4", "xfs", "vfat"} {
		t.Run(kind, func(t *testing.T) {
			needMountable(t, kind)
			moments := newPulling(t, kind, t.TempDir()).captureAll()
			seeds := make([]uint64, *cardRuns)
			for i := range seeds {
				seeds[i] = rand.Uint64() >> 16
			}
			if *cardSeed != 0 {
				seeds = []uint64{*cardSeed}
			}
			for _, seed := range seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { pullOnce(t, kind, moments, seed) })
			}
		})
	}
}

// needMountable skips what this machine cannot make and mount.
func needMountable(t *testing.T, kind string) {
	t.Helper()
	_ = exec.Command("modprobe", "-q", kind).Run() // where it is a module
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || !slices.Contains(strings.Fields(string(known)), kind) {
		t.Skipf("not run: this kernel has no %s", kind)
	}
	if out, err := exec.Command("losetup", "-f").CombinedOutput(); err != nil {
		t.Skipf("not run: no loop device: %s", out)
	}
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		t.Skipf("not run: mkfs.%s is not installed", kind)
	}
}

// pulling is a reader with two cards, and the device that captures from it.
type pulling struct {
	s    *site
	a, b *card
}

func newPulling(t *testing.T, kind, dir string) *pulling {
	t.Helper()
	s := newSiteIn(t, dir)
	mount := filepath.Dir(s.capture)
	if err := os.Remove(s.capture); err != nil {
		t.Fatal(err)
	}
	w := &pulling{s: s}
	w.a = newCard(t, kind, filepath.Join(dir, "a.img"), mount, "A")
	w.b = newCard(t, kind, filepath.Join(dir, "b.img"), mount, "B")
	w.insert(w.a)
	t.Cleanup(func() {
		for unix.Unmount(mount, unix.MNT_DETACH) == nil {
			continue
		}
	})
	return w
}

// insert plugs one of the cards in; the site's medium is named as the daemon would name it.
func (w *pulling) insert(c *card) {
	c.plug()
	w.s.medium.Name = "uuid:" + filepath.Base(c.image)
}

func (w *pulling) remove(c *card) {
	c.pull()
	w.s.medium.Name = ""
}

// capture offers every picture of a card that stands there, once.
func (w *pulling) capture(p *process, c *card) {
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		id, _, _ := durable.IdentityOf(info)
		_, err = p.Adopt(context.Background(), Request{
			Watch: "cam", Path: path, RelPath: "insp-7/" + filepath.Base(path), Parent: "insp-7", Identity: attachment.SourceIdentity(id), Move: true,
		})
		var nt *NotTakenError
		if err != nil && !errors.As(err, &nt) {
			w.s.t.Errorf("%s: %v", path, err)
		}
	}
}

// captureAll captures the card undisturbed and returns the moments of that: file operations, those that are not of bytes
// made as many as the others, so that they are met as often.
func (w *pulling) captureAll() (moments []int) {
	if _, err := spool.Open(durable.OS(), w.s.dir); err != nil {
		w.s.t.Fatal(err)
	}
	count := 0
	var bytes, names []int
	p := w.s.start(durable.Hooked(func(c durable.Call) error {
		if count++; c.Op == durable.OpRead || c.Op == durable.OpWrite {
			bytes = append(bytes, count)
		} else {
			names = append(names, count)
		}
		return nil
	}))
	count, bytes, names = 0, nil, nil
	w.capture(p, w.a)
	w.complete(p, w.a)
	p.stop()
	return slices.Concat(bytes, slices.Repeat(names, max(1, len(bytes)/len(names))))
}

// complete demands that every picture of some cards is in custody exactly once and gone from the card that is plugged in.
func (w *pulling) complete(p *process, plugged *card, others ...*card) {
	w.s.t.Helper()
	found := map[string]int{}
	for _, content := range p.contents() {
		found[content]++
	}
	want := 0
	for _, c := range append(others, plugged) {
		for path, content := range c.files {
			want++
			if found[string(content)] != 1 {
				w.s.t.Errorf("%s of %s is in custody %d times", path, filepath.Base(c.image), found[string(content)])
			}
		}
	}
	if n := len(p.contents()); n != want {
		w.s.t.Errorf("%d attachments, want %d", n, want)
	}
	for path := range plugged.files {
		if exists(path) {
			w.s.t.Errorf("%s still stands on its card", path)
		}
	}
	if w.s.t.Failed() {
		for id := range p.contents() {
			w.s.t.Logf("%s %s %+v", id, p.manifest(id).Custody, p.manifest(id).Source)
		}
	}
	if left := p.leftovers(); len(left) > 0 {
		w.s.t.Errorf("left in staging: %v", left)
	}
}

func pullOnce(t *testing.T, kind string, moments []int, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	at, way, restart, other := moments[rnd.IntN(len(moments))], rnd.IntN(3), rnd.IntN(2) == 0, rnd.IntN(2) == 0
	defer func() {
		if t.Failed() {
			t.Logf("again: go test ./internal/intake -run 'TestCardPulledAtAnyMoment/%s' -intake.cardseed=%d (operation %d, way %d, restart %v, other %v)",
				kind, seed, at, way, restart, other)
		}
	}()
	w := newPulling(t, kind, t.TempDir())
	if _, err := spool.Open(durable.OS(), w.s.dir); err != nil {
		t.Fatal(err)
	}
	mend, inserted := func() {}, w.a
	strike := func() {
		switch way {
		case 0:
			w.remove(w.a)
			inserted = nil
		case 1: // another card at once, with the same names on it
			w.remove(w.a)
			w.insert(w.b)
			inserted = w.b
		default:
			mend = w.a.tear()
		}
	}
	count, struck := 0, true
	p := w.s.start(durable.Hooked(func(durable.Call) error {
		if count++; count >= at && !struck {
			struck = true
			strike()
		}
		return nil
	}))
	count, struck = 0, false
	w.capture(p, w.a)
	if !struck {
		struck = true
		strike() // right after the capture
	}
	if inserted != w.b && len(p.leftovers()) > 0 {
		t.Errorf("left after the card was pulled: %v", p.leftovers())
	}
	if inserted == w.a {
		w.remove(w.a)
	}
	mend()
	next := func() {
		if restart {
			p.stop()
			p = w.s.restart()
		}
		if err := errors.Join(p.Resume(context.Background()), p.ReleasePending(context.Background())); err != nil {
			t.Error(err)
		}
	}
	next()
	if inserted != w.b && other {
		w.insert(w.b)
		inserted = w.b
		next()
	}
	var others []*card
	if inserted == w.b {
		w.settle(p, w.b)
		others = append(others, w.b)
		for path := range w.b.files {
			if exists(path) {
				t.Errorf("%s still stands on card B", path)
			}
		}
		w.remove(w.b)
		next()
	}
	w.insert(w.a)
	next()
	w.settle(p, w.a)
	w.complete(p, w.a, others...)
	p.stop()
}

// settle offers a card's pictures until nothing changes: a watch does that with time.
func (w *pulling) settle(p *process, c *card) {
	for range 3 {
		w.capture(p, c)
		if err := p.ReleasePending(context.Background()); err != nil {
			w.s.t.Error(err)
		}
	}
}
