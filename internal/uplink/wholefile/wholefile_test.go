package wholefile_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/uplink/wholefile"
)

const chunk = 4 << 10

// rig joins a server in memory and drivers that send to it.
type rig struct {
	t       *testing.T
	network *uplinktest.Network
}

func newRig(t *testing.T, server http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, network: &uplinktest.Network{}}
	web := &http.Server{Handler: server, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended, l := make(chan error, 1), r.network.Listener()
	go func() { ended <- web.Serve(l) }()
	t.Cleanup(func() {
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

func options(o *remote.Options) {
	o.Protocol, o.Credential = wholefile.Protocol(), nil
}

// driver makes one with PUT, or, without a template, with POST.
func (r *rig) driver(template string, lengthOnly bool) *wholefile.Driver {
	r.t.Helper()
	o := remote.Options{
		Endpoint: "http://127.0.0.1/dav", Logger: slog.New(slog.DiscardHandler), Dial: r.network.Dial, IdleTimeout: 5 * time.Second,
	}
	options(&o)
	client, err := remote.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.CloseIdle)
	return wholefile.New(wholefile.Options{Client: client, Path: parse(r.t, template), LengthOnly: lengthOnly})
}

func parse(t testing.TB, template string) *placement.Template {
	t.Helper()
	if template == "" {
		return nil
	}
	parsed, err := placement.Parse(template)
	if err != nil {
		t.Fatal(err)
	}
	return &parsed
}

// device is what the daemon keeps of one attachment over its deliveries.
type device struct {
	t        *testing.T
	content  []byte
	manifest *attachment.Manifest
	rec      *uplinktest.Recorder
}

func (r *rig) device(size int) *device {
	content := uplinktest.Content(uint64(size), size)
	m := uplinktest.NewManifest(r.t, content)
	return &device{r.t, content, m, uplinktest.NewRecorder(m)}
}

// deliver is one delivery.
func (d *device) deliver(driver uplink.Driver) (receipt.Receipt, error) {
	d.t.Helper()
	up, err := uplink.New(uplink.Options{Driver: driver, ChunkMax: chunk, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		d.t.Fatal(err)
	}
	payload := uplinktest.NewPayload(d.t, d.content)
	m, confirmed := d.rec.Manifest(d.manifest)
	err = up.Deliver(d.t.Context(), m, confirmed, payload, &uplinktest.Gate{}, d.rec)
	for _, broken := range uplinktest.Broken(d.rec, payload) {
		d.t.Error(broken)
	}
	if err != nil {
		return receipt.Receipt{}, err
	}
	return *d.rec.Seen().Receipt, nil
}

func (d *device) at() string { return "/dav/" + string(d.manifest.ID) }

// The driver keeps what it declares, whether it reads back, is told digests, or goes by the length.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		set        func(*dav)
		lengthOnly bool
	}{
		"read back":             {func(*dav) {}, false},
		"told digests":          {func(d *dav) { d.tells = true }, false},
		"length only":           {func(*dav) {}, true},
		"no conditions":         {func(d *dav) { d.blind = true }, false},
		"directories are there": {func(d *dav) { d.flat = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			uplinktest.Run(t, func(t *testing.T) (one, two uplink.Driver) {
				r := newRig(t, newDav(c.set, func(d *dav) { d.dirs["/dav"] = true }))
				return r.driver(placement.Default, c.lengthOnly), r.driver(placement.Default, c.lengthOnly)
			})
		})
	}
}

// Whatever one request meets, the file gets there.
func TestAmongEnemies(t *testing.T) {
	uplinktest.Hostile(t, uplinktest.Kind{
		Name: "http", Bare: true,
		Serve: func(testing.TB) (http.Handler, func(*attachment.Manifest) []byte) {
			d := newDav(func(d *dav) { d.flat = true })
			return d, func(m *attachment.Manifest) []byte { return d.stored("/" + string(m.ID)) }
		},
		Refuse:  func(w http.ResponseWriter, _ *http.Request, status int) { w.WriteHeader(status) },
		Options: options,
		Driver: func(c *remote.Client) uplink.Driver {
			return wholefile.New(wholefile.Options{Client: c, Path: parse(t, "{id}")})
		},
		Size: 5 * chunk / 2, Chunk: chunk,
	})
}

// A file goes to its name in one request, below directories that are made, and says what it is.
func TestPut(t *testing.T) {
	server := newDav(func(d *dav) { d.dirs["/dav"] = true })
	r := newRig(t, server)
	d := r.device(10 * chunk)
	d.manifest.Filename, d.manifest.Parent.LocalID = attachment.NameOf("a #1.jpg"), attachment.NameOf("insp/7")
	got, err := d.deliver(r.driver(placement.Default, false))
	date := d.manifest.CapturedAt.UTC().Format("2006-01-02")
	name := "insp_7/" + date + "/" + string(d.manifest.ID) + "-a #1.jpg"
	if err != nil || got.Grade != receipt.VerifiedDigest || got.MediaID != name || got.Server != "127.0.0.1" {
		t.Errorf("%+v, %v", got, err)
	}
	if !bytes.Equal(server.stored("/dav/"+name), d.content) {
		t.Errorf("stored: %v", server.calls)
	}
	want := []string{
		"HEAD /dav/" + name, "PUT /dav/" + name, "MKCOL /dav/insp_7/", "MKCOL /dav/insp_7/" + date + "/", "PUT /dav/" + name,
		"HEAD /dav/" + name, "GET /dav/" + name,
	}
	if !slices.Equal(server.calls, want) {
		t.Errorf("requests %q", server.calls)
	}
	h := server.headers[4]
	if h.Get("Idempotency-Key") != `"`+string(d.manifest.ID)+`"` || h.Get("If-None-Match") != "*" || h.Get("Content-Type") != d.manifest.MediaType ||
		!strings.HasPrefix(h.Get("Repr-Digest"), "sha-256=:") || h.Get("Content-Digest") != h.Get("Repr-Digest") {
		t.Errorf("header %v", h)
	}
}

// What lies at a file's address before it was ever begun stays as it is, unless it is the file.
func TestOccupied(t *testing.T) {
	for name, set := range map[string]func(*dav){"found before": func(*dav) {}, "no digest to be had": func(d *dav) { d.mute = true }} {
		t.Run(name, func(t *testing.T) {
			server := newDav(set, func(d *dav) { d.flat = true })
			r := newRig(t, server)
			d := r.device(2 * chunk)
			server.store(d.at(), []byte("somebody else's"))
			_, err := d.deliver(r.driver("{id}", false))
			if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.NeedsIdentityConflict {
				t.Errorf("%v", err)
			}
			if string(server.stored(d.at())) != "somebody else's" || server.count("PUT")+server.count("DELETE") > 0 {
				t.Errorf("touched: %q", server.calls)
			}
			server.store(d.at(), d.content)
			if _, err := d.deliver(r.driver("{id}", false)); err != nil || server.count("PUT") > 0 {
				t.Errorf("it is there, and %v, %q", err, server.calls)
			}
		})
	}
}

// taken stores something at the moment at which a file is put for the first time.
type taken struct {
	*dav
	content []byte
}

// ServeHTTP implements http.Handler.
func (s *taken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && s.content != nil {
		s.store(r.URL.Path, s.content)
		s.content = nil
	}
	s.dav.ServeHTTP(w, r)
}

// The condition of a PUT finds what came there in between: the file itself is welcome, another one stays.
func TestTakenInBetween(t *testing.T) {
	for _, same := range []bool{true, false} {
		server := &taken{dav: newDav(func(d *dav) { d.flat = true })}
		r := newRig(t, server)
		d := r.device(2 * chunk)
		if server.content = []byte("somebody else's"); same {
			server.content = d.content
		}
		want := server.content
		_, err := d.deliver(r.driver("{id}", false))
		e, _ := errors.AsType[*remote.Error](err)
		if same != (err == nil) || !same && e.Reason != attachment.NeedsIdentityConflict || !bytes.Equal(server.stored(d.at()), want) {
			t.Errorf("same %v: %v", same, err)
		}
	}
}

// What is left of an attempt is replaced by the next one, of this process or of another.
func TestRemnantIsReplaced(t *testing.T) {
	server := newDav(func(d *dav) { d.flat = true })
	r := newRig(t, server)
	d := r.device(8 * chunk)
	r.network.Plan(func(dial int) uplinktest.Link {
		link := uplinktest.Good()
		if dial <= 12 {
			link.Up = 3 * chunk
		}
		return link
	})
	var err error
	for range 20 {
		if _, err = d.deliver(r.driver("{id}", false)); err == nil {
			break
		}
		if e, ok := errors.AsType[*remote.Error](err); !ok || e.Class == remote.ItemPermanent {
			t.Fatalf("%v", err)
		}
	}
	if err != nil || !bytes.Equal(server.stored(d.at()), d.content) || server.count("PUT") < 3 {
		t.Errorf("%v after %q", err, server.calls)
	}
	if n := d.rec.Seen().Losses; n > 0 {
		t.Errorf("%d losses of what was never confirmed", n)
	}
}

// A server that gives nothing back leaves the length, and the receipt says so.
func TestNothingGivenBack(t *testing.T) {
	r := newRig(t, newDav(func(d *dav) { d.flat, d.mute = true, true }))
	if got, err := r.device(chunk).deliver(r.driver("{id}", false)); err != nil || got.Grade != receipt.LengthOnly {
		t.Errorf("%+v, %v", got, err)
	}
}

// Refusals and oddities of web servers, and what follows.
func TestWebServers(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if _, err := io.WriteString(w, "<html>a shop</html>"); err != nil {
			return
		}
	}
	onPut := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				w.WriteHeader(status)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		}
	}
	for name, c := range map[string]struct {
		server http.HandlerFunc
		class  remote.Class
		reason attachment.Code
	}{
		"a page for every address": {page, remote.ChannelTransient, attachment.HoldNotOurServer},
		"success for everything": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
			remote.ChannelTransient, attachment.HoldNotOurServer},
		"no directory, and none made":  {onPut(409), remote.ItemPermanent, attachment.NeedsRefused},
		"a file that is too large":     {onPut(413), remote.ItemPermanent, attachment.NeedsSizeLimit},
		"a media type that it refuses": {onPut(415), remote.ItemPermanent, attachment.NeedsMediaType},
		"a full volume":                {onPut(507), remote.ChannelOperator, attachment.HoldServerFull},
		"no right to write":            {onPut(403), remote.ItemPermanent, attachment.NeedsForbidden},
		"no credential":                {onPut(401), remote.ChannelOperator, attachment.HoldCredentials},
		"a redirect":                   {onPut(308), remote.ChannelTransient, attachment.HoldNotOurServer},
		"success, and nothing there":   {onPut(201), remote.ItemTransient, attachment.HoldServerError},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.server)
			_, err := r.device(4 * chunk).deliver(r.driver("{parent}/{id}", false))
			if e, ok := errors.AsType[*remote.Error](err); !ok || e.Class != c.class || e.Reason != c.reason {
				t.Errorf("%v", err)
			}
		})
	}
}

// A file that was begun is not sent to a page either.
func TestPageOnceBegun(t *testing.T) {
	puts := 0
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			puts++
		}
		w.Header().Set("Content-Type", "text/html")
	}))
	d := r.device(chunk)
	d.manifest.Delivery.Attempts = 3
	_, err := d.deliver(r.driver("{id}", false))
	if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.HoldNotOurServer || puts != 0 {
		t.Errorf("%v; %d files were sent", err, puts)
	}
}

// POST goes by the answer: by what it says of the bytes, by where it says they are, else by the length. Without it the file is
// sent again, under the same key.
func TestPost(t *testing.T) {
	var keys []string
	answer := func(http.ResponseWriter, *attachment.Manifest) {}
	store := newDav(func(d *dav) { d.flat = true })
	d := (*device)(nil)
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			store.ServeHTTP(w, req)
			return
		}
		keys = append(keys, req.Header.Get("Idempotency-Key"))
		got, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		store.store("/dav/kept", got)
		answer(w, d.manifest)
	}))
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *attachment.Manifest)
		grade  receipt.Grade
	}{
		"nothing": {func(w http.ResponseWriter, _ *attachment.Manifest) { w.WriteHeader(http.StatusNoContent) }, receipt.LengthOnly},
		"digest": {func(w http.ResponseWriter, m *attachment.Manifest) {
			if _, err := io.WriteString(w, `{"length":8192,"sha256":"`+m.SHA256.String()+`"}`); err != nil {
				t.Error(err)
			}
		}, receipt.VerifiedDigest},
		"where it is": {func(w http.ResponseWriter, _ *attachment.Manifest) {
			w.Header().Set("Location", "/dav/kept")
			w.WriteHeader(http.StatusCreated)
		}, receipt.VerifiedDigest},
		"where something else is": {func(w http.ResponseWriter, _ *attachment.Manifest) {
			w.Header().Set("Location", "/dav/other")
			w.WriteHeader(http.StatusCreated)
		}, receipt.LengthOnly},
	} {
		t.Run(name, func(t *testing.T) {
			keys, answer, d = nil, c.answer, r.device(2*chunk)
			d.t = t
			got, err := d.deliver(r.driver("", false))
			if err != nil || got.Grade != c.grade || len(keys) != 1 || keys[0] != `"`+string(d.manifest.ID)+`"` {
				t.Errorf("%+v, %v, keys %q", got, err, keys)
			}
		})
	}
	for _, body := range []string{`{"length":1}`, `{"sha256":"00"}`, "<html>"} {
		answer, d = func(w http.ResponseWriter, _ *attachment.Manifest) {
			if body == "<html>" {
				w.Header().Set("Content-Type", "text/html")
			}
			if _, err := io.WriteString(w, body); err != nil {
				t.Error(err)
			}
		}, r.device(2*chunk)
		if got, err := d.deliver(r.driver("", false)); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// An empty file is sent too, by either method.
func TestEmptyFile(t *testing.T) {
	for _, template := range []string{"{id}", ""} {
		server := newDav(func(d *dav) { d.flat = true })
		r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				w.WriteHeader(http.StatusCreated)
				return
			}
			server.ServeHTTP(w, req)
		}))
		if _, err := r.device(0).deliver(r.driver(template, false)); err != nil {
			t.Errorf("%q: %v", template, err)
		}
	}
}
