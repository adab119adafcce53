package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// maxID is how long a receipt's names may be, in bytes.
const maxID = 255

// SessionID is a short name for an upload: the last part of its address, or else a digest of it.
func SessionID(u *url.URL) string {
	id := path.Base(u.Path)
	if u.RawQuery == "" && id != "." && id != "/" && len(id) <= maxID && utf8.ValidString(id) && attachment.Printable(id) == id {
		return id
	}
	sum := sha256.Sum256([]byte(u.String()))
	return hex.EncodeToString(sum[:16])
}
