package tus

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
)

// Whatever a server answers is understood as something or as nothing, and what is taken from it is sound.
func FuzzAnswers(f *testing.F) {
	f.Add(http.MethodPost, 400, "ERR_UPLOAD_REJECTED: no", "1.0.0", "creation,checksum", "4096", "sha-256=:AAAA:", "/files/a")
	f.Add(http.MethodPatch, 460, `{"error":{"code":"ChecksumMismatch","message":"m"}}`, "0.2", "", "-1", "sha-256=::", "//h/%zz")
	f.Add(http.MethodOptions, 204, "", "", " , ,", "99999999999999999999", "", "..")
	f.Add(http.MethodPost, 201, "", "", "", "", "", "/files/\x80")
	f.Fuzz(func(t *testing.T, method string, status int, body, version, extensions, size, digest, location string) {
		h := http.Header{"Tus-Version": {version}, "Tus-Extension": {extensions}, "Tus-Max-Size": {size}}
		resp := &http.Response{StatusCode: status, Header: h, Request: &http.Request{Method: method}}
		ours(remote.StepProbe, resp)
		if _, _, err := problem(resp, []byte(body)); err != nil {
			t.Errorf("a refusal in the protocol is none: %v", err)
		}
		features, err := featuresIn(&remote.Response{Header: h})
		if err == nil && (features.maxSize < 0 || features.has("")) {
			t.Errorf("%+v", features)
		}
		if sum := foreign.DigestIn(http.Header{"Repr-Digest": {digest}}); sum != "" && len(sum) != 64 {
			t.Errorf("digest %q", sum)
		}
		if u, err := url.Parse(location); err == nil {
			if id := foreign.SessionID(u); id == "" || len(id) > 255 || !utf8.ValidString(id) || strings.ContainsAny(id, "/\n") {
				t.Errorf("%q: the upload is called %q", location, id)
			}
		}
	})
}
