package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/test/seeds"
)

// Somebody fills the device's volume to the last block before any one of its file operations, in custody, transfer and
// registration: nothing is lost or shown as what it is not, everything that waits says why, and it all goes on by itself when
// there is room again. With the reserve of the queue file and, so that its commits meet the full volume as well, without.
func TestFullVolume(t *testing.T) {
	for name, v := range map[string]struct {
		adopt   config.Adopt
		reserve int64
	}{
		"copy with reserve": {config.AdoptCopy, 0}, "move without reserve": {config.AdoptMove, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := smallVolume(t)
			n := 0
			for more := true; more; n++ {
				device, server := filepath.Join(volume, fmt.Sprint(n)), seeds.Dir(t)
				must(t, os.Mkdir(device, 0o700))
				synctest.Test(t, func(t *testing.T) {
					s := newSim(t, device, 1)
					s.server.dir = server
					s.device.reserve, s.device.cfg.Watch["camera"].Adopt, s.device.cfg.Uplink.Workers = v.reserve, v.adopt, 1
					more = s.fillAt(filepath.Join(volume, "ballast"), n)
				})
				if t.Failed() {
					t.Fatalf("at operation %d", n)
				}
				must(t, os.RemoveAll(device))
			}
			t.Logf("%d operations", n-1)
			if n < 60 {
				t.Errorf("only %d operations: custody and delivery are not reached", n)
			}
		})
	}
}

// smallVolume is a filesystem of its own for the length of a test.
func smallVolume(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting an ext4 image needs root")
	}
	image, dir := filepath.Join(seeds.Dir(t), "image"), t.TempDir()
	for _, args := range [][]string{
		{"truncate", "-s", "24M", image}, {"mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=1", image}, {"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("not run: no ext4 image can be mounted here: %s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return dir
}

// fillVolume takes every block that can be had.
func fillVolume(ballast string) error {
	f, err := os.Create(ballast)
	if err != nil {
		return err
	}
	at := int64(0)
	for size := int64(16 << 20); size >= 512; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, size); {
		case err == nil:
			at += size
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		default:
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// fillAt lets the device take and deliver two files, and fills the volume before operation n. It reports whether there was
// such an operation.
func (s *sim) fillAt(ballast string, n int) (reached bool) {
	defer func() {
		if s.t.Failed() {
			s.t.Log(s.story())
		}
	}()
	s.openServer()
	s.device.start(0)
	defer func() {
		s.device.stop(false)
		s.server.stop(false)
	}()
	synctest.Wait()
	for name, size := range map[string]int{"large.jpg": 2*simChunk + 700, "small.jpg": 900} {
		content := uplinktest.Content(uint64(size), size)
		s.files = append(s.files, simFile{name: name, digest: digestOf(content)})
		must(s.t, os.WriteFile(filepath.Join(s.device.capture, name), content, 0o600))
	}
	var mu sync.Mutex
	count := 0
	s.device.disk.setFault(func(c durable.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if count++; count-1 == n {
			reached = true
			s.note("the volume is filled before operation %d: %s %s", n, c.Op, c.Path)
			must(s.t, fillVolume(ballast))
		}
		return nil
	})
	s.device.dropped <- struct{}{}
	s.rest(10 * time.Minute)
	s.device.disk.setFault(nil)
	s.look(true)
	s.broken(false)
	s.told()
	if reached {
		must(s.t, os.Remove(ballast))
	}
	s.finish()
	s.device.restart(false, 0)
	synctest.Wait()
	s.sound()
	sentOnce(s)
	return reached
}

// told expects that whatever is not delivered says why, and that nothing of it needs a person: room is what it needs.
func (s *sim) told() {
	s.t.Helper()
	must(s.t, s.device.session.store.Err())
	for _, e := range s.records() {
		m := e.Manifest
		if !m.State.Undelivered() {
			continue
		}
		if why := s.device.session.why(e); why == nil || why.Reason != attachment.HoldDeviceFull && why.Reason != attachment.NotTakenQueue {
			s.t.Errorf("%s is %s and says %+v", m.Filename.Text, m.Condition(), why)
		}
	}
	s.device.mu.Lock()
	defer s.device.mu.Unlock()
	for _, c := range s.device.candidates() {
		if code := s.device.notTaken[c.RelPath]; !s.device.stays[c.RelPath] && code != attachment.NotTakenStorage {
			s.t.Errorf("%s is not taken and says %q", c.RelPath, code)
		}
	}
}
