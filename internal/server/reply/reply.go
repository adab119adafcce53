// Package reply writes the answers of the receiving server.
//
// It owns how a message, a problem and the headers common to all answers look on the wire, so that control plane and
// data plane answer alike. It promises that every answer carries the protocol header and that every refusal is
// application/problem+json with a code of package wire. Read Problem first.
package reply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// retry is what Retry-After says with the codes that a client can wait out.
var retry = map[wire.Code]time.Duration{
	wire.CodeBusy:         time.Second,
	wire.CodeTooMany:      5 * time.Second,
	wire.CodeShuttingDown: 5 * time.Second,
}

// Common sets the headers that every answer has: the protocol's version, and that nothing on the way may keep it.
func Common(h http.Header) {
	h.Set(wire.HeaderProtocol, strconv.Itoa(wire.Protocol))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Problem answers with a refusal. The status is that of the code; detail is for people and holds nothing that the
// client did not send or may not know.
func Problem(w http.ResponseWriter, code wire.Code, detail string) {
	Refuse(w, wire.Problem{Code: code, Detail: detail})
}

// Refuse answers with a problem that has members of its own; status and title are filled in from its code.
func Refuse(w http.ResponseWriter, p wire.Problem) {
	p.Status = p.Code.Status()
	p.Title = cmp.Or(http.StatusText(p.Status), "Checksum Mismatch") // 460 is known to tus alone
	p.Detail = cut(p.Detail)
	h := w.Header()
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	h.Del("Content-Disposition")
	if p.Code == wire.CodeCredentials {
		h.Set("WWW-Authenticate", `Bearer realm="fieldgw"`)
	}
	if after, ok := retry[p.Code]; ok {
		h.Set("Retry-After", strconv.Itoa(int(after/time.Second)))
	}
	write(w, p.Status, wire.ContentTypeProblem, p)
}

// maxDetail bounds the sentence of a refusal, in bytes; it may quote what the client sent.
const maxDetail = 500

func cut(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + "…"
}

// JSON answers with a message of the control plane.
func JSON(w http.ResponseWriter, status int, message any) {
	write(w, status, wire.ContentTypeJSON, message)
}

// write sends a message. The messages of package wire always marshal; what the connection does with the bytes the
// client finds out by itself, so the error of writing them is of no use here.
func write(w http.ResponseWriter, status int, contentType string, message any) {
	body, err := json.Marshal(message)
	if err != nil {
		status, contentType = http.StatusInternalServerError, wire.ContentTypeProblem
		body = fmt.Appendf(nil, `{"title":"Internal Server Error","status":500,"code":%q}`, wire.CodeInternal)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
