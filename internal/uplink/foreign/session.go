package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// SessionID is a short name for an upload: the last part of its address, or else a digest of it.
func SessionID(u *url.URL) string {
	id := path.Base(u.Path)
	if u.RawQuery == "" && id != "." && id != "/" && len(id) <= receipt.MaxName && utf8.ValidString(id) && attachment.Printable(id) == id {
		return id
	}
	sum := sha256.Sum256([]byte(u.String()))
	return hex.EncodeToString(sum[:16])
}

// Resolve is the address of a session, which is gone where the configuration has left it behind.
func Resolve(c *remote.Client, step remote.Step, s attachment.Session) (*url.URL, error) {
	u, err := c.Resolve(s.URL)
	if err != nil {
		return nil, Gone(step, "it lies behind another address than the endpoint's")
	}
	return u, nil
}

// Gone is the error of a session that is of no use any more, whatever the server said.
func Gone(step remote.Step, why string) *remote.Error {
	e := remote.Refused(step, wire.CodeSessionGone)
	e.Status, e.Detail = http.StatusGone, why
	return e
}
