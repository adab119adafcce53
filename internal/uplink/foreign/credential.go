package foreign

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/fieldgw/fieldgw/internal/remote"
)

// CheckCredential takes a credential file for one of these servers: one word is a bearer token, user:password is for the Basic
// scheme. The error contains none of it.
func CheckCredential(text string) error {
	user, password, basic := strings.Cut(text, ":")
	odd := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case text == "" || strings.ContainsFunc(text, odd):
		return fmt.Errorf("%w: empty, or with control characters", remote.ErrBadCredential)
	case basic && (user == "" || password == ""):
		return fmt.Errorf("%w: want user:password", remote.ErrBadCredential)
	case !basic && strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%w: want one word of printable ASCII, or user:password", remote.ErrBadCredential)
	}
	return nil
}

// Authorize makes an Authorization header of a credential that CheckCredential took (RFC 6750, 2.1; RFC 7617, 2).
func Authorize(text string) string {
	if strings.Contains(text, ":") {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(text))
	}
	return "Bearer " + text
}
