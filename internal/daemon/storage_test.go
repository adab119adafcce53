package daemon

import (
	"testing"

	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/disk"

	gopsutil "github.com/shirou/gopsutil/v3/disk"
)

// An adoption that looks at the volume first keeps nobody from being told, and nothing from being scanned again, that space
// ran out or came back.
func TestStorageIsToldWhoeverSawItFirst(t *testing.T) {
	free := uint64(100 << 20)
	sensor := disk.New(t.TempDir(), disk.Options{Usage: func(string) (*gopsutil.UsageStat, error) {
		return &gopsutil.UsageStat{Total: 1 << 30, Free: free}, nil
	}})
	s := newStorage(sensor, config.Storage{WarnFree: 64 << 20, Reserve: 32 << 20})
	s.refresh(t.Context())
	for _, step := range []struct {
		free    uint64
		changed bool
	}{{100 << 20, false}, {10 << 20, true}, {10 << 20, false}, {100 << 20, true}, {100 << 20, false}} {
		free = step.free
		if err := s.room(t.Context(), 2*cheapNeed); (err == nil) != (free > 32<<20) {
			t.Errorf("room with %d bytes free: %v", free, err)
		}
		if changed := s.observe(t.Context()); changed != step.changed {
			t.Errorf("%d bytes free: told %v, want %v", free, changed, step.changed)
		}
	}
}
