// Package wholefile is the driver `http`: one request for each file, PUT to an address of its own (any web server that takes
// it, WebDAV among them) or POST to one address for all.
//
// Nothing can be resumed: every attempt begins at the first byte, a pause ends it, and no offset between the first and the last
// byte is ever confirmed. So a success is not believed either: what lies at the address is read back before it counts, and only
// that decides. Where a file was begun before, what lies at its address is what is left of that, and is replaced; anything
// else there is a conflict, and is left alone. Read Driver first, then inspect.go.
package wholefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Options are what a Driver needs.
type Options struct {
	// Client speaks Protocol().
	Client *remote.Client
	// Path names each file below the endpoint. The zero value sends every file to the endpoint itself, by POST.
	Path *placement.Template
	// LengthOnly: what was stored is not read back.
	LengthOnly bool
	// Registrar gives the receipts.
	Registrar foreign.Registrar
}

// Driver implements uplink.Driver.
type Driver struct {
	Options
	readings foreign.Readings

	mu sync.Mutex
	// begun are files that this process has begun to send. What earlier ones did the manifest's attempts tell.
	begun map[attachment.ID]bool
	// answers are those to POST, which nothing at the server repeats. One that is forgotten makes its file be sent again.
	answers map[attachment.ID]answer
}

// New returns the driver. It asks the server nothing.
func New(o Options) *Driver {
	return &Driver{Options: o, begun: map[attachment.ID]bool{}, answers: map[attachment.ID]answer{}}
}

// Name returns the name in the configuration.
func (d *Driver) Name() string { return "http" }

// Capabilities declare a digest where the stored bytes can be read back, and nothing else.
func (d *Driver) Capabilities() uplink.Capabilities {
	return uplink.Capabilities{Digests: d.Path != nil && !d.LengthOnly}
}

// Reserve looks whether the file is at its address already.
func (d *Driver) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	if d.Path == nil {
		return d.reservePost(m, s), nil
	}
	u, err := d.address(m, s)
	if err != nil {
		return uplink.Reservation{}, remote.Fail(remote.StepReserve, remote.KindRequest, err)
	}
	res := uplink.Reservation{
		Session: attachment.Session{ID: string(m.ID), URL: u.String(), Generation: 1}, MediaID: d.mediaID(m, u), MinAppend: m.Length,
	}
	got, err := d.inspect(ctx, remote.StepReserve, m, u)
	switch {
	case err != nil || !got.there || got.is(m):
	case got.page && !page(m.MediaType):
		err = notFiles(remote.StepReserve, "it answers with a page of HTML")
	case s.URL == "" && !d.hasBegun(m):
		got, err = d.occupied(ctx, remote.StepReserve, m, u)
	}
	switch {
	case err != nil:
		return uplink.Reservation{}, err
	case got.is(m):
		res.Verified = &got.verdict
	default:
		res.BytesNeeded = true
	}
	return res, nil
}

// address is where the file lies: where it was begun, as long as that is below the endpoint, else by the template.
func (d *Driver) address(m *attachment.Manifest, s attachment.Session) (*url.URL, error) {
	if u, err := d.Client.Resolve(s.URL); err == nil {
		return u, nil
	}
	segments := strings.Split(d.Path.Path(m), "/")
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	return d.Client.Resolve("./" + strings.Join(segments, "/"))
}

// mediaID is the file's path below the endpoint, where that is a name that a receipt takes.
func (d *Driver) mediaID(m *attachment.Manifest, u *url.URL) string {
	id := strings.TrimPrefix(strings.TrimPrefix(u.Path, strings.TrimSuffix(d.Client.Endpoint().Path, "/")), "/")
	if id == "" || len(id) > receipt.MaxName || attachment.Printable(id) != id {
		return string(m.ID)
	}
	return id
}

// Offset is all or nothing.
func (d *Driver) Offset(ctx context.Context, m *attachment.Manifest, s attachment.Session) (int64, error) {
	if d.Path == nil {
		if _, answered := d.answered(m.ID); answered {
			return m.Length, nil
		}
		return 0, nil
	}
	u, err := foreign.Resolve(d.Client, remote.StepOffset, s)
	if err != nil {
		return 0, err
	}
	got, err := d.head(ctx, remote.StepOffset, u)
	if err != nil || !got.there || got.verdict.Length != m.Length {
		return 0, err
	}
	return m.Length, nil
}

// Append sends the whole file.
func (d *Driver) Append(ctx context.Context, a uplink.Append) (int64, error) {
	if a.Offset != 0 || a.Length != a.Manifest.Length {
		return 0, remote.Refused(remote.StepAppend, wire.CodeOffsetMismatch)
	}
	if d.Path == nil {
		return d.post(ctx, a)
	}
	u, err := foreign.Resolve(d.Client, remote.StepAppend, a.Session)
	if err != nil {
		return 0, err
	}
	err = d.put(ctx, a, u)
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindProblem {
		switch e.Status {
		case http.StatusConflict, http.StatusNotFound: // RFC 4918, 9.7.1: a collection above it is missing
			err = d.putBelow(ctx, a, u)
		case http.StatusPreconditionFailed:
			_, err = d.occupied(ctx, remote.StepAppend, a.Manifest, u)
		}
	}
	if err != nil {
		return 0, err
	}
	return a.Length, nil
}

// put sends the file, on the condition that nothing lies at its address, unless that is what is left of an earlier attempt.
func (d *Driver) put(ctx context.Context, a uplink.Append, u *url.URL) error {
	h, read := d.header(a.Manifest), 0
	if !d.hasBegun(a.Manifest) {
		h.Set("If-None-Match", "*")
	}
	body := a.Body
	a.Body = func() io.Reader { return &watched{Reader: body(), read: &read} }
	_, err := d.Client.Stream(ctx, remote.Append{
		Step: remote.StepAppend, Method: http.MethodPut, URL: u, Body: a.Body, Length: a.Length, Moved: a.Moved, Header: h,
	})
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || e.Status == 0 || e.Status >= 500 || read > 1 {
		d.begin(a.Manifest.ID)
	}
	if ok && e.Status == http.StatusPreconditionFailed && h.Get("If-None-Match") != "" && read > 1 {
		return d.put(ctx, a, u) // the transport had sent it once before, when its connection broke
	}
	return err
}

// watched counts the bodies of one request of which something was read.
type watched struct {
	io.Reader
	read  *int
	begun bool
}

// Read implements io.Reader. The transport reads one body after the other.
func (w *watched) Read(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		*w.read++
	}
	return w.Reader.Read(p)
}

// Close implements io.Closer.
func (w *watched) Close() error {
	if c, ok := w.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// begin notes that a part of the file may lie at its address.
func (d *Driver) begin(id attachment.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun[id] = true
}

func (d *Driver) hasBegun(m *attachment.Manifest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ours := m.Delivery.Driver == "" || m.Delivery.Driver == d.Name() // an attempt of another driver put nothing here
	return ours && (m.Delivery.Attempts > 0 || m.Delivery.Session.ID != "") || d.begun[m.ID]
}

func (d *Driver) forget(id attachment.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.begun, id)
	delete(d.answers, id)
}

func (d *Driver) header(m *attachment.Manifest) http.Header {
	digest := wire.FormatDigest(foreign.SHA256, m.SHA256[:])
	h := http.Header{
		wire.HeaderIdempotencyKey: {strconv.Quote(string(m.ID))}, wire.HeaderContentDigest: {digest}, wire.HeaderReprDigest: {digest},
		"Content-Type": {"application/octet-stream"},
	}
	if attachment.Printable(m.MediaType) == m.MediaType && m.MediaType != "" {
		h.Set("Content-Type", m.MediaType)
	}
	return h
}

// occupied looks, maybe once more, at an address where nothing was to lie before the file was begun. What is there is the file,
// from an answer that was lost, or an error: one answer alone gives no file to a person.
func (d *Driver) occupied(ctx context.Context, step remote.Step, m *attachment.Manifest, u *url.URL) (found, error) {
	got, err := d.inspect(ctx, remote.StepVerify, m, u)
	switch {
	case err != nil || got.is(m):
		return got, err
	case !got.there:
		return got, remote.Fail(step, remote.KindMismatch, fmt.Errorf("%w: its address is taken, and nothing lies there", uplink.ErrAnswer))
	case got.page && !page(m.MediaType):
		return got, notFiles(step, "it answers with a page of HTML")
	}
	if everything, err := d.answersAnything(ctx, step, u); err != nil || everything {
		return got, cmp.Or(err, error(notFiles(step, "it has something at every address")))
	}
	e := remote.Refused(step, wire.CodeIdentityConflict)
	e.Detail = "another file lies at its address"
	return got, e
}

// notFiles says that a web server which has an answer for every address is none that files can be sent to.
func notFiles(step remote.Step, detail string) *remote.Error {
	return remote.Fail(step, remote.KindForeign, fmt.Errorf("%w: %s", remote.ErrForeign, detail))
}

// answersAnything reports whether something lies where nobody ever put anything.
func (d *Driver) answersAnything(ctx context.Context, step remote.Step, beside *url.URL) (bool, error) {
	u, err := d.Client.Resolve(beside.String() + "." + uuid.NewString())
	if err != nil {
		return false, remote.Fail(step, remote.KindRequest, err)
	}
	_, err = d.Client.Do(ctx, remote.Request{Step: remote.StepVerify, Method: http.MethodHead, URL: u})
	e, judged := errors.AsType[*remote.Error](err)
	switch {
	case err == nil:
		return true, nil
	case judged && e.Kind == remote.KindProblem:
		return false, nil
	}
	return false, err
}

// putBelow makes the collections between the endpoint and the file, the outermost first (RFC 4918, 9.3), and sends the file once
// more. That they are there already, or cannot be made, is not known before that.
func (d *Driver) putBelow(ctx context.Context, a uplink.Append, u *url.URL) error {
	below, found := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(d.Client.Endpoint().EscapedPath(), "/")+"/")
	segments := strings.Split(below, "/")
	for i := range len(segments) - 1 {
		dir, err := d.Client.Resolve("./" + strings.Join(segments[:i+1], "/") + "/")
		if err != nil || !found {
			break
		}
		_, err = d.Client.Do(ctx, remote.Request{Step: remote.StepReserve, Method: "MKCOL", URL: dir})
		e, ok := errors.AsType[*remote.Error](err)
		if ok && (e.Kind != remote.KindProblem || e.Class == remote.ChannelOperator) {
			return err
		}
	}
	err := d.put(ctx, a, u)
	if e, ok := errors.AsType[*remote.Error](err); ok && (e.Status == http.StatusConflict || e.Status == http.StatusNotFound) {
		e.Ruling = remote.Fail(remote.StepAppend, remote.KindRequest, nil).Ruling
		e.Kind, e.Detail = remote.KindRequest, "the server has no directory for it and makes none"
	}
	return err
}

// Register asks the registrar for the receipt.
func (d *Driver) Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v uplink.Verdict) (receipt.Receipt, error) {
	f := foreign.Found{MediaID: string(m.ID), Location: s.URL, Server: d.Client.Endpoint().Host, Verdict: v}
	if d.Path == nil {
		got, _ := d.answered(m.ID)
		f.Location = got.location
	} else if u, err := d.Client.Resolve(s.URL); err == nil {
		f.MediaID = d.mediaID(m, u)
	}
	rec, err := d.Registrar.Register(ctx, m, f)
	if err == nil {
		d.forget(m.ID)
	}
	return rec, err
}

// Cancel removes what lies at the address: it is not the file.
func (d *Driver) Cancel(ctx context.Context, s attachment.Session) error {
	if d.Path == nil {
		d.forget(attachment.ID(s.ID))
		return remote.Refused(remote.StepCancel, wire.CodeMethod)
	}
	u, err := d.Client.Resolve(s.URL)
	if err != nil {
		return nil
	}
	_, err = d.Client.Do(ctx, remote.Request{Step: remote.StepCancel, Method: http.MethodDelete, URL: u})
	return err
}
