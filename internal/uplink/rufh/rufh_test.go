package rufh_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/rufh"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const chunk = 64 << 10 // bytes

func spoken(o *remote.Options) { o.Protocol = rufh.Protocol() }

// start makes a rig whose server is used without its control plane.
func start(t testing.TB) (*uplinktest.Rig, *rufh.Driver) {
	rig := uplinktest.Start(t, uplinktest.Resumable, spoken)
	return rig, rufh.New(rufh.Options{Client: rig.Client})
}

// The driver keeps every promise that it declares, with a server that says digests, with one whose bytes are read back, and
// where nobody asks for more than the length.
func TestConforms(t *testing.T) {
	for name, c := range map[string]struct{ says, lengthOnly bool }{
		"digest said": {says: true}, "read back": {}, "length only": {lengthOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			rig, _ := start(t)
			rig.Server.SetDigests(c.says)
			uplinktest.Run(t, func(t *testing.T) (uplink.Driver, uplink.Driver) {
				options := rufh.Options{Client: rig.Client, LengthOnly: c.lengthOnly}
				other := options
				other.Client = rig.NewClient(t, uplinktest.Resumable, spoken)
				return rufh.New(options), rufh.New(other)
			})
		})
	}
}

// Whatever one request meets, a delivery gets over it.
func TestAmongEnemies(t *testing.T) {
	uplinktest.Hostile(t, uplinktest.Kind{
		Name: "rufh",
		Serve: func(testing.TB) (http.Handler, func(*attachment.Manifest) []byte) {
			s := uplinktest.NewServer()
			return s, func(m *attachment.Manifest) []byte { return s.Completed(m.Length) }
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, status int) {
			w.Header().Set(wire.HeaderUploadComplete, "?0")
			w.WriteHeader(status)
		},
		Options: func(o *remote.Options) {
			uplinktest.Resumable(o)
			spoken(o)
		},
		Driver: func(c *remote.Client) uplink.Driver { return rufh.New(rufh.Options{Client: c}) },
		Size:   5 * chunk / 2, Chunk: chunk,
	})
}

// deliver brings content to the rig's server over a fresh uplink, and demands what its recorder must hold.
func deliver(t *testing.T, d *rufh.Driver, content []byte) (*uplinktest.Recorder, error) {
	t.Helper()
	up, err := uplink.New(uplink.Options{Driver: d, ChunkMax: chunk, ChunkFloor: chunk / 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := uplinktest.NewManifest(t, content)
	rec, payload := uplinktest.NewRecorder(m), uplinktest.NewPayload(t, content)
	err = up.Deliver(t.Context(), m, 0, payload, &uplinktest.Gate{}, rec)
	for _, broken := range uplinktest.Broken(rec, payload) {
		t.Error(broken)
	}
	return rec, err
}

func mustDeliver(t *testing.T, d *rufh.Driver, content []byte, grade receipt.Grade) uplinktest.Seen {
	t.Helper()
	rec, err := deliver(t, d, content)
	seen := rec.Seen()
	if err != nil || seen.Receipt == nil || seen.Receipt.Grade != grade {
		t.Fatalf("%v; recorded %+v", err, seen)
	}
	return seen
}

// A creation says everything about the file and has no content; then one append carries it all.
func TestCreation(t *testing.T) {
	rig, d := start(t)
	content := uplinktest.Content(1, 5*chunk)
	mustDeliver(t, d, content, receipt.VerifiedDigest)
	var creation, last http.Header
	for _, c := range rig.Server.Calls() {
		switch c.Step {
		case remote.StepReserve:
			creation = c.Header
		case remote.StepAppend:
			last = c.Header
		}
	}
	for name, want := range map[string]string{
		"Upload-Complete": "?0", "Upload-Length": strconv.Itoa(len(content)), "Content-Type": "image/jpeg", "Upload-Draft-Interop-Version": "8",
		"Content-Disposition": `inline; filename="boiler room.jpg"`, "Want-Repr-Digest": "sha-256=10",
	} {
		if got := creation.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := creation.Get("Repr-Digest"); !strings.HasPrefix(got, "sha-256=:") {
		t.Errorf("Repr-Digest: %q", got)
	}
	if last.Get("Upload-Complete") != "?1" || rig.Server.Count(remote.StepAppend) != 1 {
		t.Errorf("%d appends, the last says %q", rig.Server.Count(remote.StepAppend), last.Get("Upload-Complete"))
	}
}

// What the server says of sizes is kept to, and a file that it does not take costs no bytes.
func TestLimits(t *testing.T) {
	for limits, want := range map[string]struct {
		appends int
		reason  attachment.Code
	}{
		"max-append-size=100000":                          {4, ""},
		"max-append-size=100000, min-append-size=100000":  {4, ""},
		"max-size=1000000, max-age=3600, colour=red":      {1, ""},
		"max-append-size=?1":                              {1, ""},
		"max-size=327679":                                 {0, attachment.NeedsSizeLimit},
		"min-size=327681":                                 {0, attachment.NeedsSizeLimit},
		"min-append-size=300000, max-append-size=9000000": {1, ""},
	} {
		t.Run(limits, func(t *testing.T) {
			rig, d := start(t)
			rig.Server.SetLimits(limits)
			_, err := deliver(t, d, uplinktest.Content(1, 5*chunk))
			if e, ok := errors.AsType[*remote.Error](err); (want.reason == "") != (err == nil) || ok && e.Reason != want.reason {
				t.Errorf("got %v", err)
			}
			if n := rig.Server.Count(remote.StepAppend); n != want.appends {
				t.Errorf("%d appends, want %d", n, want.appends)
			}
		})
	}
}

// A server that knows nothing of the protocol is not given a creation, which it might take for an empty file.
func TestOtherServer(t *testing.T) {
	rig, d := start(t)
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: uplinktest.Foreign(204, http.Header{"Allow": {"POST"}}, "")})
	_, err := deliver(t, d, uplinktest.Content(1, 100))
	if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.HoldNotOurServer || rig.Server.Count(remote.StepReserve) != 0 {
		t.Errorf("got %v after %d creations", err, rig.Server.Count(remote.StepReserve))
	}
}

// An upload whose creation broke off after its address was announced is found by it; two addresses are one too many.
func TestAnnouncedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, d := start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: uplinktest.Cut(0)})
		mustDeliver(t, d, uplinktest.Content(1, chunk), receipt.VerifiedDigest)
		if n := rig.Server.Count(remote.StepReserve); n != 1 {
			t.Errorf("%d creations", n)
		}
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
			h.Set("Location", h.Get("Location")+"0")
			return status, body
		})})
		_, err := deliver(t, d, uplinktest.Content(2, chunk))
		if e, ok := errors.AsType[*remote.Error](err); !ok || e.Kind != remote.KindMismatch {
			t.Errorf("two addresses: %v", err)
		}
	})
}

// final makes an act answer the append that ends the upload.
func final(act uplinktest.Act) uplinktest.Act {
	return func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Upload-Complete") == "?1" {
			act(s, w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// refusedWhole lets the server take everything and refuse it.
func refusedWhole(status int) uplinktest.Act {
	return uplinktest.Edit(func(_ int, h http.Header, _ []byte) (int, []byte) {
		h.Del("Content-Length")
		h.Set(wire.HeaderUploadComplete, "?1")
		return status, nil
	})
}

// A file that the server refuses once it has it is not taken for delivered by anything that the upload says later. A refusal
// needs a person; where processing failed it is sent again.
func TestRefusedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{400, 409, 413, 422} {
			rig, d := start(t)
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: final(refusedWhole(status))})
			rec, err := deliver(t, d, uplinktest.Content(1, chunk))
			if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.NeedsRefused || rec.Seen().Verified {
				t.Errorf("%d: %v; recorded %+v", status, err, rec.Seen())
			}
			_, err = d.Offset(t.Context(), uplinktest.NewManifest(t, uplinktest.Content(1, chunk)), rec.Seen().Session)
			if e, ok := errors.AsType[*remote.Error](err); !ok || !e.Gone() {
				t.Errorf("%d: the session goes on: %v", status, err)
			}
		}
		rig, d := start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: final(refusedWhole(500))})
		if seen := mustDeliver(t, d, uplinktest.Content(1, chunk), receipt.VerifiedDigest); seen.Losses != 1 {
			t.Errorf("recorded %+v", seen)
		}
	})
}

// A server may forget an upload once it is complete: the last answer is what the receipt rests on then.
func TestForgottenAfterTheEnd(t *testing.T) {
	forgetful := uplinktest.Foreign(404, nil, "")
	for name, c := range map[string]struct {
		digests bool
		gone    []remote.Step
		grade   receipt.Grade
	}{
		"digest in the answer": {true, []remote.Step{remote.StepOffset, remote.StepVerify}, receipt.VerifiedDigest},
		"read back":            {false, []remote.Step{remote.StepOffset}, receipt.VerifiedDigest},
		"nothing left":         {false, []remote.Step{remote.StepOffset, remote.StepVerify}, receipt.LengthOnly},
	} {
		t.Run(name, func(t *testing.T) {
			rig, d := start(t)
			rig.Server.SetDigests(c.digests)
			for _, step := range c.gone {
				rig.Server.Inject(uplinktest.Fault{Step: step, Times: uplinktest.Always, Act: forgetful})
			}
			mustDeliver(t, d, uplinktest.Content(1, 3*chunk), c.grade)
			if n := rig.Server.Count(remote.StepReserve); n != 1 {
				t.Errorf("%d uploads", n)
			}
		})
	}
}

// An upload that the server ended before its end, or that is another file's, is given up.
func TestUploadThatIsNotThisFile(t *testing.T) {
	for name, spoil := range map[string]func(h http.Header){
		"ended early":    func(h http.Header) { h.Set(wire.HeaderUploadComplete, "?1") },
		"another length": func(h http.Header) { h.Set(wire.HeaderUploadLength, "5") },
	} {
		t.Run(name, func(t *testing.T) {
			rig, d := start(t)
			m := uplinktest.NewManifest(t, uplinktest.Content(1, chunk))
			res, err := d.Reserve(t.Context(), m, attachment.Session{})
			if err != nil {
				t.Fatal(err)
			}
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepOffset, Act: uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
				spoil(h)
				return status, body
			})})
			_, err = d.Reserve(t.Context(), m, res.Session)
			if e, ok := errors.AsType[*remote.Error](err); !ok || !e.Gone() {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Confirmations that are missing, cannot be true or come after the answer change nothing of what arrives.
func TestLyingConfirmations(t *testing.T) {
	for name, talk := range map[string]uplinktest.Interim{
		"none": nil, "backwards": func(stored int64) []int64 { return []int64{stored, 0} },
		"beyond": func(stored int64) []int64 { return []int64{stored + 1<<40} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig, d := start(t)
				rig.Server.SetInterim(talk)
				mustDeliver(t, d, uplinktest.Content(1, 6*chunk), receipt.VerifiedDigest)
			})
		})
	}
	t.Run("late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig, d := start(t)
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: uplinktest.LateInterim(1, 1<<40)})
			mustDeliver(t, d, uplinktest.Content(1, 6*chunk), receipt.VerifiedDigest)
		})
	})
}

// One driver serves several deliveries at one time.
func TestTogether(t *testing.T) {
	_, d := start(t)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			if rec, err := deliver(t, d, uplinktest.Content(uint64(i), 3*chunk+i)); err != nil || rec.Seen().Receipt == nil {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
}
