package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/store"
)

func (d *device) options() Options {
	return Options{Config: d.config(), FS: d.fs, Logger: newSilent()}
}

func (d *device) accountDir() string {
	return filepath.Join(d.dir, "state", "accounts", accountOf(d.t))
}

// A queue file that is truncated, emptied, deleted or overwritten is refused with a clear message and rebuilt from what lies
// beside it: delivered stays delivered, what is owed is delivered once, pauses stand, and the old file is kept.
func TestRebuildAfterDamage(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"emptied":   func(p string) error { return os.Truncate(p, 0) },
		"truncated": func(p string) error { return os.Truncate(p, 10_000) },
		"deleted":   os.Remove,
		"zeroed":    func(p string) error { return os.WriteFile(p, make([]byte, 65536), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			ctx := context.Background()
			d.up()
			d.drop("insp-7/delivered.jpg", 1000)
			d.delivered("delivered.jpg")
			_, err := d.client.ActOnChannel(ctx, client.Pause, control.ChannelAction{Reason: "battery"})
			must(t, err)
			d.drop("insp-7/owed.jpg", 200_000)
			d.drop("insp-7/paused.jpg", 2000)
			d.until("custody", func() bool { return len(d.items()) == 3 })
			_, err = d.client.Act(ctx, client.Pause, control.Action{IDs: []attachment.ID{d.item("paused.jpg").ID}})
			must(t, err)
			if _, err := Rebuild(ctx, d.options(), false); !errors.Is(err, store.ErrLocked) {
				t.Errorf("rebuild beside a daemon: %v", err)
			}
			d.down()
			if _, err := Rebuild(ctx, d.options(), false); !errors.Is(err, ErrQueueHealthy) {
				t.Errorf("rebuild of a queue that can be used: %v", err)
			}
			must(t, damage(filepath.Join(d.accountDir(), queueFile)))
			d.up()
			if s := d.status(); s.Degraded == nil || !s.NeedsAttention() {
				t.Fatalf("not refused: %+v", s)
			}
			d.down()
			r, err := Rebuild(ctx, d.options(), false)
			if err != nil || r.Counts[attachment.ShownDelivered].Items != 1 || (r.Kept == "") != (name == "deleted") {
				t.Fatalf("rebuild: %+v, %v", r, err)
			}
			if r.Kept != "" {
				if _, err := os.Stat(r.Kept); err != nil {
					t.Errorf("the old file is not kept: %v", err)
				}
			}
			if findings, err := Check(ctx, d.options(), true, false); err != nil || len(findings) != 0 {
				t.Errorf("after the rebuild: %+v, %v", findings, err)
			}
			d.up()
			if s := d.status(); !s.Sending.Paused {
				t.Error("the pause of all sending is forgotten")
			}
			_, err = d.client.ActOnChannel(ctx, client.Resume, control.ChannelAction{})
			must(t, err)
			d.delivered("owed.jpg")
			if i := d.item("paused.jpg"); i.Condition != attachment.ShownPaused {
				t.Errorf("the paused file is %s", i.Condition)
			}
			_, err = d.client.Act(ctx, client.Resume, control.Action{All: true})
			must(t, err)
			d.delivered("paused.jpg", "delivered.jpg")
			if n := d.server.Count(remote.StepReserve); n != 3 {
				t.Errorf("%d reserves for three files", n)
			}
		})
	}
}

// A queue of a newer version is not damaged: it is refused with what to do, and not even a rebuild replaces it.
func TestNewerQueueIsKept(t *testing.T) {
	d := newDevice(t)
	ctx := context.Background()
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.delivered("a.jpg")
	d.down()
	newer := queueSchema()
	newer.Version++
	newer.Migrations = map[int]func(*store.Tx) error{newer.Version - 1: func(*store.Tx) error { return nil }}
	st, err := store.Open(filepath.Join(d.accountDir(), queueFile), newer, store.Options{})
	must(t, err)
	must(t, st.Close())
	if r, err := Rebuild(ctx, d.options(), false); !errors.Is(err, store.ErrNewerSchema) || r.Kept != "" {
		t.Errorf("rebuild: %+v, %v", r, err)
	}
	d.up()
	if s := d.status(); s.Degraded == nil || !strings.Contains(s.Problems[0].Action, "newer version") {
		t.Errorf("%+v", s)
	}
}

// A check names what is broken and leaves it; a repair mends what can be mended, marks the rest for a person, and deletes
// nothing.
func TestCheckAndRepair(t *testing.T) {
	d := newDevice(t)
	ctx := context.Background()
	d.up()
	d.drop("insp-7/delivered.jpg", 1000)
	d.delivered("delivered.jpg")
	_, err := d.client.ActOnChannel(ctx, client.Pause, control.ChannelAction{})
	must(t, err)
	for _, name := range []string{"manifest.jpg", "changed.jpg", "missing.jpg"} {
		d.drop("insp-7/"+name, 3000)
	}
	d.until("custody", func() bool { return len(d.items()) == 4 })
	if report, err := d.client.Check(ctx, control.CheckRequest{Deep: true}); err != nil || len(report.Findings) != 0 {
		t.Fatalf("healthy: %+v, %v", report, err)
	}
	path := func(name string) string {
		detail, err := d.client.Get(ctx, string(d.item(name).ID))
		must(t, err)
		return detail.PayloadPath
	}
	must(t, os.Remove(path("manifest.jpg")+".manifest"))
	must(t, os.Remove(path("missing.jpg")))
	data, err := os.ReadFile(path("changed.jpg"))
	must(t, err)
	data[1] ^= 1
	must(t, os.WriteFile(path("changed.jpg"), data, 0o600))
	must(t, os.Remove(filepath.Join(d.accountDir(), "receipts", string(d.item("delivered.jpg").ID))))

	kinds := func(findings []control.Finding) map[string]int {
		n := map[string]int{}
		for _, f := range findings {
			n[f.Kind]++
			if f.Remedy == "" {
				t.Errorf("%s has no remedy", f.Kind)
			}
		}
		return n
	}
	report, err := d.client.Check(ctx, control.CheckRequest{Deep: true})
	must(t, err)
	found := kinds(report.Findings)
	for _, kind := range []intake.Broken{intake.BrokenManifest, intake.BrokenMissing, intake.BrokenChanged, intake.BrokenReceipt} {
		if found[string(kind)] != 1 {
			t.Errorf("%s: found %d; all: %v", kind, found[string(kind)], found)
		}
	}
	report, err = d.client.Check(ctx, control.CheckRequest{Deep: true, Repair: true})
	must(t, err)
	found = kinds(report.Findings)
	if report.Repaired != 4 || found[string(intake.BrokenManifest)] != 0 || found[string(intake.BrokenReceipt)] != 0 {
		t.Errorf("repaired %d, left %v", report.Repaired, found)
	}
	for name, code := range map[string]attachment.Code{"changed.jpg": attachment.NeedsPayloadChanged, "missing.jpg": attachment.NeedsPayloadMissing} {
		if got := reason(d.item(name).Waiting); got != code {
			t.Errorf("%s waits for %q", name, got)
		}
	}
	d.down()
	findings, err := Check(ctx, d.options(), false, false)
	if err != nil || len(findings) != 1 || findings[0].Kind != intake.BrokenMissing {
		t.Errorf("stopped: %+v, %v", findings, err)
	}
}
