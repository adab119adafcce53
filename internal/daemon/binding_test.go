package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// withSidecars is a device whose watch goes by sidecars.
func withSidecars(t *testing.T, keys ...string) *device {
	d := newDevice(t)
	d.watch = "parent = \"sidecar\"\n" + strings.Join(keys, "\n")
	return d
}

// put writes a text into the capture directory by a rename, as a careful program does.
func (d *device) put(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, "capture", name)
	must(d.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(d.t, os.WriteFile(path+".tmp", []byte(text), 0o644))
	must(d.t, os.Rename(path+".tmp", path))
}

func (d *device) there(name string) bool {
	_, err := os.Lstat(filepath.Join(d.dir, "capture", name))
	return err == nil
}

func (d *device) detail(name string) control.ItemDetail {
	d.t.Helper()
	i, err := d.client.Get(context.Background(), string(d.item(name).ID))
	must(d.t, err)
	return i
}

// notTaken is the reason why a path is not taken; empty when it is not listed.
func (d *device) notTaken(name string) control.Waiting {
	page, err := d.client.NotTaken(context.Background(), "", 100)
	if err != nil {
		return control.Waiting{}
	}
	for _, n := range page.Items {
		if n.Path.Exact() == filepath.Join(d.dir, "capture", name) {
			return n.Waiting
		}
	}
	return control.Waiting{}
}

// bound waits until a file is delivered and holds it against what bound it.
func (d *device) bound(name, parent, sidecar string) control.ItemDetail {
	d.t.Helper()
	d.delivered(name)
	i := d.detail(name)
	if i.Parent.LocalID.Exact() != parent || i.Binding.Sidecar.Exact() != filepath.Join(d.dir, "capture", sidecar) {
		d.t.Errorf("%s belongs to %q by %q, want %q by %q", name, i.Parent.LocalID.Exact(), i.Binding.Sidecar.Exact(), parent, sidecar)
	}
	if i.Receipt == nil || i.Receipt.Parent.LocalID != parent {
		d.t.Errorf("%s was registered with %+v, want parent %s", name, i.Receipt, parent)
	}
	return i
}

func (d *device) count(c attachment.Condition) int64 {
	s := d.status()
	return s.Of(c).Items
}

const full = `{"version":1,"parent":"INS-7","captured_at":"2025-11-12T13:14:15+01:00","priority":4,"description":"Kessel, vorne"}`

// A sidecar binds its file in either order, says what it says, leaves with it, and travels beside the payload.
func TestSidecarInEitherOrder(t *testing.T) {
	for _, order := range [][]string{{"a.jpg", "a.jpg.json"}, {"a.jpg.json", "a.jpg"}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			d := withSidecars(t)
			d.up()
			defer d.down()
			text := map[string]string{"a.jpg": "a picture", "a.jpg.json": full}
			d.put(order[0], text[order[0]])
			if order[0] == "a.jpg" {
				d.until("waits for its sidecar", func() bool { return reason(d.item("a.jpg").Waiting) == attachment.HoldSidecar })
				if w := d.item("a.jpg").Waiting; w.NextAttempt == nil || w.Since.IsZero() || len(w.Unblock) == 0 || d.item("a.jpg").Condition != attachment.ShownCaptured {
					t.Errorf("%+v", w)
				}
			} else {
				d.until("listed as alone", func() bool { return d.notTaken("a.jpg.json").Reason == attachment.NotTakenSidecarAlone })
			}
			d.put(order[1], text[order[1]])
			i := d.bound("a.jpg", "INS-7", "a.jpg.json")
			if !i.CapturedAt.Equal(time.Date(2025, 11, 12, 12, 14, 15, 0, time.UTC)) || i.CapturedAtSource != "sidecar" || i.Priority != 4 || i.Description != "Kessel, vorne" {
				t.Errorf("%+v", i)
			}
			d.until("the sidecar left", func() bool { return !d.there("a.jpg.json") && !d.detail("a.jpg").Binding.ReleasePending })
			d.until("the copy moved", func() bool { return d.item("a.jpg").LocalCopy == control.CopyDelivered })
			kept, err := os.ReadFile(d.detail("a.jpg").PayloadPath + ".sidecar")
			if err != nil || string(kept) != full {
				t.Errorf("beside the payload: %q, %v", kept, err)
			}
			if len(d.items()) != 1 {
				t.Errorf("%d attachments", len(d.items()))
			}
		})
	}
}

// One manifest.json binds what it names of its directory, whenever it comes, and stays; names that are no UTF-8 get a
// sidecar of their own.
func TestManifestOfADirectory(t *testing.T) {
	d := withSidecars(t)
	d.up()
	defer d.down()
	d.put("tour/a.jpg", "first")
	d.until("waits", func() bool { return reason(d.item("a.jpg").Waiting) == attachment.HoldSidecar })
	d.put("tour/manifest.json", `{"version":1,"files":{"a.jpg":{"parent":"A"},"b.jpg":{"parent":"B","priority":2}}}`)
	d.bound("a.jpg", "A", "tour/manifest.json")
	d.put("tour/b.jpg", "second")
	if i := d.bound("b.jpg", "B", "tour/manifest.json"); i.Priority != 2 {
		t.Errorf("%+v", i)
	}
	d.put("tour/c.jpg", "not named")
	d.put("other/a.jpg", "of another directory")
	d.until("both wait", func() bool {
		n := 0
		for _, i := range d.items() {
			if reason(i.Waiting) == attachment.HoldSidecar {
				n++
			}
		}
		return n == 2
	})
	d.put("tour/c.jpg.json", `{"version":1,"parent":"C"}`)
	d.bound("c.jpg", "C", "tour/c.jpg.json")
	d.put("tour/\xff.jpg", "raw")
	d.put("tour/\xff.jpg.json", `{"version":1,"parent":"R"}`)
	d.bound("\ufffd.jpg", "R", "tour/\xff.jpg.json")
	if !d.there("tour/manifest.json") {
		t.Error("the manifest is gone")
	}
}

// A bad sidecar sends its file to attention with the line that is wrong; corrected where it lies it binds; retry sends the
// file without it, and the sidecar does not bring it back to attention.
func TestBadSidecar(t *testing.T) {
	d := withSidecars(t)
	d.up()
	defer d.down()
	d.put("a.jpg", "a picture")
	d.put("a.jpg.json", "{\n  \"version\": 1,\n    \"parnet\": \"INS-7\"\n}")
	d.put("b.jpg", "another")
	d.put("b.jpg.json", "{")
	d.until("both need attention", func() bool {
		return d.item("a.jpg").Condition == attachment.ShownAttention && d.item("b.jpg").Condition == attachment.ShownAttention
	})
	want := `a.jpg.json:3:5: unknown key "parnet" (parent?)`
	if p := d.detail("a.jpg").Problem; p == nil || p.Code != attachment.NeedsSidecarInvalid || p.Detail != want {
		t.Errorf("%+v", p)
	}
	d.until("the sidecar is listed", func() bool { return d.notTaken("a.jpg.json").Reason == attachment.NeedsSidecarInvalid })
	d.put("a.jpg.json", `{"version":1,"parent":"INS-7","priority":11}`)
	d.until("the next mistake is shown", func() bool {
		p := d.detail("a.jpg").Problem
		return p != nil && p.Detail == "a.jpg.json:1:42: want a whole number from 0 to 9"
	})
	d.put("a.jpg.json", `{"version":1,"parent":"INS-7"}`)
	d.bound("a.jpg", "INS-7", "a.jpg.json")
	if _, err := d.client.Act(context.Background(), client.Retry, control.Action{IDs: []attachment.ID{d.item("b.jpg").ID}}); err != nil {
		t.Fatal(err)
	}
	d.delivered("b.jpg")
	if i := d.detail("b.jpg"); !i.Parent.LocalID.Empty() || !i.Binding.Sidecar.Empty() || !d.there("b.jpg.json") {
		t.Errorf("%+v", i)
	}
}

// A bad manifest concerns every file of its directory that it could bind.
func TestBadManifest(t *testing.T) {
	d := withSidecars(t)
	d.up()
	defer d.down()
	d.put("tour/a.jpg", "first")
	d.put("tour/manifest.json", `{"version":1,"files":{"a.jpg":{"parent":""}}}`)
	d.until("needs attention", func() bool { return d.item("a.jpg").Condition == attachment.ShownAttention })
	if p := d.detail("a.jpg").Problem; p == nil || !strings.HasPrefix(p.Detail, "manifest.json:1:41: ") {
		t.Errorf("%+v", p)
	}
	d.put("tour/manifest.json", `{"version":1,"files":{"a.jpg":{"parent":"A"}}}`)
	d.bound("a.jpg", "A", "tour/manifest.json")
}

// A wait ends: the file is sent without a parent. While it could not be sent a late sidecar still binds it, and what the
// server reserved without a parent is registered with it.
func TestSidecarComesLate(t *testing.T) {
	d := withSidecars(t, `sidecar_wait = "1s"`)
	d.up()
	defer d.down()
	d.put("a.jpg", "a picture")
	d.delivered("a.jpg")
	if i := d.detail("a.jpg"); !i.Parent.LocalID.Empty() || i.Binding.Rule != attachment.BindSidecar {
		t.Errorf("%+v", i)
	}
	d.put("a.jpg.json", full)
	d.until("the sidecar is listed", func() bool { return d.notTaken("a.jpg.json").Reason == attachment.NotTakenSidecarAlone })

	_, err := d.client.ActOnChannel(context.Background(), client.Pause, control.ChannelAction{})
	must(t, err)
	d.put("b.jpg", "another")
	d.until("the wait is over", func() bool { return d.item("b.jpg").State == attachment.Ready })
	d.put("b.jpg.json", full)
	d.until("bound", func() bool { return d.detail("b.jpg").Parent.LocalID.Text == "INS-7" })
	_, err = d.client.ActOnChannel(context.Background(), client.Resume, control.ChannelAction{})
	must(t, err)
	d.bound("b.jpg", "INS-7", "b.jpg.json")
}

// A sidecar that comes while its file is being sent stops the worker, binds, and the sending goes on where it was.
func TestSidecarComesWhileSending(t *testing.T) {
	d := withSidecars(t, `sidecar_wait = "1s"`)
	d.up()
	defer d.down()
	d.server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: uplinktest.Slow(100 * time.Millisecond)})
	d.drop("film.mp4", 200*128<<10)
	sent := func() bool {
		confirmed := d.item("film.mp4").ConfirmedBytes
		return confirmed != nil && *confirmed > 0
	}
	d.until("being sent", sent)
	d.put("film.mp4.json", full)
	d.until("bound", func() bool { return d.detail("film.mp4").Parent.LocalID.Text == "INS-7" })
	if i := d.item("film.mp4"); i.State == attachment.Uploaded || i.State == attachment.Reconciled || !sent() {
		t.Errorf("bound late: %+v", i)
	}
	d.server.Heal()
	d.bound("film.mp4", "INS-7", "film.mp4.json")
}

// A camera uses a name again: each capture is bound by the sidecar that lies there for it. Two captures that wait under one
// name are never guessed between.
func TestSidecarIsUsedAgain(t *testing.T) {
	d := withSidecars(t, `adopt = "copy"`)
	d.up()
	defer d.down()
	d.put("DSC_0001.JPG", "first")
	d.put("DSC_0001.JPG.json", `{"version":1,"parent":"A"}`)
	d.bound("DSC_0001.JPG", "A", "DSC_0001.JPG.json")
	d.put("DSC_0001.JPG", "second content")
	d.until("two are delivered", func() bool { return d.count(attachment.ShownDelivered) == 2 })
	for _, i := range d.items() {
		if i.Parent.LocalID.Text != "A" {
			t.Errorf("%+v", i)
		}
	}
	d.put("x.jpg", "one")
	d.until("waits", func() bool { return reason(d.item("x.jpg").Waiting) == attachment.HoldSidecar })
	d.put("x.jpg", "another one")
	d.until("both wait", func() bool { return d.count(attachment.ShownCaptured) == 2 })
	d.put("x.jpg.json", `{"version":1,"parent":"X"}`)
	d.until("not guessed", func() bool { return d.notTaken("x.jpg.json").Reason == attachment.NotTakenSidecarAmbiguous })
	if _, err := d.client.Act(context.Background(), client.Retry, control.Action{IDs: []attachment.ID{d.item("x.jpg").ID}}); err != nil {
		t.Fatal(err)
	}
}

// A sidecar and its file survive a restart between any two of their steps.
func TestSidecarOverRestarts(t *testing.T) {
	d := withSidecars(t, `adopt = "copy"`)
	d.up()
	d.put("a.jpg", "a picture")
	d.until("waits", func() bool { return reason(d.item("a.jpg").Waiting) == attachment.HoldSidecar })
	until := *d.item("a.jpg").Waiting.NextAttempt
	d.down()
	d.up()
	if w := d.item("a.jpg").Waiting; reason(w) != attachment.HoldSidecar || !w.NextAttempt.Equal(until) {
		t.Errorf("after a restart: %+v, the wait was to end %s", w, until)
	}
	d.down()
	d.put("a.jpg.json", full)
	d.up()
	d.bound("a.jpg", "INS-7", "a.jpg.json")
	d.down()
	d.up()
	defer d.down()
	d.put("b.jpg", "so that the watch has looked at everything")
	d.until("waits", func() bool { return reason(d.item("b.jpg").Waiting) == attachment.HoldSidecar })
	if w := d.notTaken("a.jpg.json"); w.Reason != "" && w.Reason != attachment.NotTakenSettling && w.Reason != attachment.HoldQueued {
		t.Errorf("the sidecar that stays is listed: %+v", w)
	}
	if len(d.items()) != 2 {
		t.Errorf("%+v", d.items())
	}
}

// A pattern finds the parent in the path, byte for byte; what it does not match is secured and needs a person.
func TestPattern(t *testing.T) {
	d := newDevice(t)
	d.watch = "parent = \"pattern\"\npattern = '(?:[^/]+/)*(?P<parent>INS[^_]+)_[^/]*'"
	d.up()
	defer d.down()
	d.put("2026/INS-7_0001.jpg", "one")
	d.put("INS\xff8_0002.jpg", "two")
	d.put("holiday.jpg", "three")
	d.delivered("INS-7_0001.jpg", "INS\ufffd8_0002.jpg")
	if p := d.item("INS-7_0001.jpg").Parent.LocalID.Exact(); p != "INS-7" {
		t.Errorf("parent %q", p)
	}
	if p := d.item("INS\ufffd8_0002.jpg").Parent.LocalID.Exact(); p != "INS\xff8" {
		t.Errorf("parent %q", p)
	}
	d.until("needs attention", func() bool { return d.item("holiday.jpg").Condition == attachment.ShownAttention })
	if p := d.detail("holiday.jpg").Problem; p == nil || p.Code != attachment.NeedsPatternMismatch || p.Detail != "the path is holiday.jpg" {
		t.Errorf("%+v", p)
	}
	if _, err := d.client.Act(context.Background(), client.Retry, control.Action{IDs: []attachment.ID{d.item("holiday.jpg").ID}}); err != nil {
		t.Fatal(err)
	}
	d.delivered("holiday.jpg")
}

// What a manifest could bind is sent at once, though the manifest could not bind all that it names.
func TestPartlyBoundManifest(t *testing.T) {
	d := withSidecars(t, `adopt = "copy"`)
	d.up()
	defer d.down()
	d.put("x.jpg", "one")
	d.until("waits", func() bool { return d.count(attachment.ShownCaptured) == 1 })
	d.put("x.jpg", "another one")
	d.put("a.jpg", "a picture")
	d.until("all wait", func() bool { return d.count(attachment.ShownCaptured) == 3 })
	d.put("manifest.json", `{"version":1,"files":{"a.jpg":{"parent":"A"},"x.jpg":{"parent":"X"}}}`)
	d.bound("a.jpg", "A", "manifest.json")
}

// Cards without long names write in capitals: such a manifest binds what comes after it, and such a sidecar goes first.
func TestSidecarsInCapitals(t *testing.T) {
	d := withSidecars(t, "")
	d.up()
	defer d.down()
	d.put("MANIFEST.JSON", `{"version":1,"files":{"a.jpg":{"parent":"A"},"b.jpg":{"parent":"B"}}}`)
	d.put("a.jpg.JSON", `{"version":1,"parent":"OWN"}`)
	d.until("the sidecar waits for its file", func() bool { return d.notTaken("a.jpg.JSON").Reason == attachment.NotTakenSidecarAlone })
	d.put("a.jpg", "a picture")
	d.put("b.jpg", "another picture")
	d.bound("a.jpg", "OWN", "a.jpg.JSON")
	d.bound("b.jpg", "B", "MANIFEST.JSON")
}
