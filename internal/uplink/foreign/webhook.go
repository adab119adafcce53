package foreign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Registrar gives an attachment its receipt: by the device's own findings, or, where there is a webhook, by what that says to
// them. The zero value has no webhook.
type Registrar struct{ hook *remote.Client }

// NewRegistrar registers at the webhook that hook leads to, a client of Webhook's protocol.
func NewRegistrar(hook *remote.Client) Registrar { return Registrar{hook} }

// Found is what is registered: where the bytes are and what was found over them.
type Found struct {
	// MediaID names the content at the server, Location is where it lies there, and Server names what answered.
	MediaID, Location, Server string
	Verdict                   uplink.Verdict
}

// registration is the message to the webhook.
type registration struct {
	AttachmentID string         `json:"attachment_id"`
	MediaID      string         `json:"media_id"`
	Location     string         `json:"location,omitempty"`
	Parent       receipt.Parent `json:"parent"`
	Length       int64          `json:"length"`
	SHA256       string         `json:"sha256"`
	// Grade is what the device found: verified-digest, or length-only, where the digest is that of what was sent.
	Grade       receipt.Grade `json:"grade"`
	Filename    string        `json:"filename"`
	FilenameRaw []byte        `json:"filename_raw,omitempty"`
	MediaType   string        `json:"media_type"`
	Role        string        `json:"role"`
	Of          string        `json:"of,omitempty"`
	CapturedAt  time.Time     `json:"captured_at"`
}

// registered is the webhook's answer; all of it may be missing.
type registered struct {
	MediaID      string    `json:"media_id"`
	ServerID     string    `json:"server_id"` // of the parent
	RegisteredAt time.Time `json:"registered_at"`
	Length       *int64    `json:"length"`
	SHA256       string    `json:"sha256"`
}

// Register makes the receipt. With a webhook that took note, the grade is registered where the digest was verified, or where
// the webhook repeats length and digest; else it stays what was found. Errors are *remote.Error, and never the channel's: a
// webhook that is down stops no bytes.
func (r Registrar) Register(ctx context.Context, m *attachment.Manifest, f Found) (receipt.Receipt, error) {
	rec := Receipt(m, f.MediaID, f.Server, f.Verdict, time.Now())
	if r.hook == nil {
		return rec, nil
	}
	resp, err := r.hook.Do(ctx, remote.Request{
		Step: remote.StepRegister, Method: http.MethodPost,
		Header: http.Header{wire.HeaderIdempotencyKey: {strconv.Quote(string(m.ID))}},
		Message: registration{
			AttachmentID: rec.AttachmentID, MediaID: f.MediaID, Location: f.Location, Parent: rec.Parent, Length: rec.Length,
			SHA256: rec.SHA256, Grade: rec.Grade, Filename: m.Filename.Text, FilenameRaw: m.Filename.Raw, MediaType: m.MediaType,
			Role: string(m.Role), Of: string(m.Of), CapturedAt: m.CapturedAt.UTC(),
		},
	})
	if err != nil {
		return receipt.Receipt{}, itemsOwn(err)
	}
	if resp.Status == http.StatusAccepted {
		pending := remote.Fail(remote.StepRegister, remote.KindPending, nil)
		pending.Status, pending.RetryAfter, pending.Detail = resp.Status, resp.RetryAfter, "the webhook wants to be asked again"
		return receipt.Receipt{}, pending
	}
	var answer registered
	if len(resp.Body) > 0 {
		if err := resp.Decode(&answer); err != nil {
			return receipt.Receipt{}, itemsOwn(err)
		}
	}
	if err := answer.fill(&rec); err != nil {
		return receipt.Receipt{}, itemsOwn(resp.Mismatch(err))
	}
	rec.Server = r.hook.Endpoint().Host
	return rec, nil
}

// fill takes over what the webhook said, and raises the grade to what it proves.
func (a *registered) fill(rec *receipt.Receipt) error {
	length := a.Length != nil && *a.Length == rec.Length
	digest := a.SHA256 == rec.SHA256
	if a.Length != nil && !length || a.SHA256 != "" && !digest {
		return fmt.Errorf("%w: the webhook speaks of other bytes", uplink.ErrAnswer)
	}
	if rec.Grade == receipt.VerifiedDigest || length && digest {
		rec.Grade = receipt.Registered
	}
	if a.MediaID != "" {
		rec.MediaID = a.MediaID
	}
	if a.ServerID != "" {
		rec.Parent.ServerID = a.ServerID
	}
	if !a.RegisteredAt.IsZero() {
		rec.RegisteredAt = a.RegisteredAt.UTC()
	}
	return nil
}

// itemsOwn makes what would hold the channel the attachment's own: it waits for the webhook, and others are sent meanwhile.
func itemsOwn(err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || e.Class == remote.Cancelled {
		return err
	}
	own := *e
	own.Confirm, own.Repeats = false, 0
	if own.Class == remote.ChannelTransient || own.Class == remote.ChannelOperator {
		own.Class, own.Charge = remote.ItemTransient, true
	}
	own.Detail = "webhook"
	if e.Detail != "" {
		own.Detail += ": " + e.Detail
	}
	return &own
}

// Webhook is the protocol of a registration webhook: JSON or nothing in its answers, and statuses that mean what they say.
func Webhook() *remote.Protocol {
	return &remote.Protocol{
		Name:    "webhook",
		Ours:    hookAnswers,
		Accepts: map[remote.Step][]int{remote.StepRegister: {200, 201, 202, 204}},
		Problem: hookProblem,
		Probe:   func(context.Context, *remote.Client) error { return nil },

		CheckCredential: CheckCredential, Authorize: Authorize, Anonymous: true,
	}
}

// hookAnswers tells a webhook's answer from a portal's, a proxy's or a web server's that has no such webhook. Those must not
// pass for a registration, nor for a refusal of the file.
func hookAnswers(_ remote.Step, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
		return false
	case http.StatusUnauthorized:
		return true // its form is the web server's affair
	}
	text := resp.Header.Get("Content-Type")
	if text == "" {
		return resp.ContentLength == 0
	}
	media, _, err := mime.ParseMediaType(text)
	return err == nil && (media == wire.ContentTypeJSON || media == wire.ContentTypeProblem) || resp.ContentLength == 0
}

// hookProblem knows what concerns the file for good.
func hookProblem(resp *http.Response, body []byte) (wire.Code, string, error) {
	var p wire.Problem
	if err := json.Unmarshal(body, &p); err != nil {
		p = wire.Problem{} // the status says enough
	}
	switch resp.StatusCode {
	case http.StatusConflict:
		return wire.CodeIdentityConflict, p.Detail, nil
	case http.StatusUnprocessableEntity:
		return wire.CodeParentPolicy, p.Detail, nil
	}
	return "", p.Detail, nil
}
