package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// tokenMark begins the text of every token and names its format.
const tokenMark = "fgw1"

// TokenSecretBytes is the length of a token's secret.
const TokenSecretBytes = 32

// maxName bounds the name of an account or a device.
const maxName = 63

// ErrToken is returned by ParseToken for a text that is no token. It never contains any of the text.
var ErrToken = errors.New("not a fieldgw token")

// Token is a device's credential. Its text is fgw1.ACCOUNT.DEVICE.SECRET, so that a device knows account and device
// while it is offline; only the secret proves anything.
type Token struct {
	Account string
	Device  string
	Secret  [TokenSecretBytes]byte
}

// Text is the token as it is stored on a device and sent in an Authorization header. It must never be logged.
func (t Token) Text() string {
	return strings.Join([]string{tokenMark, t.Account, t.Device, base64.RawURLEncoding.EncodeToString(t.Secret[:])}, ".")
}

// String leaves the secret out, so that a token formatted by mistake gives nothing away.
func (t Token) String() string { return tokenMark + "." + t.Account + "." + t.Device + ".***" }

// ParseToken reads the text of a token. Errors wrap ErrToken and say what is wrong without repeating the text.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != tokenMark {
		return Token{}, fmt.Errorf("parse token: %w: want %s and three more parts", ErrToken, tokenMark)
	}
	t := Token{Account: parts[1], Device: parts[2]}
	if !ValidName(t.Account) || !ValidName(t.Device) {
		return Token{}, fmt.Errorf("parse token: %w: account or device is not a name", ErrToken)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	if err != nil || len(secret) != TokenSecretBytes {
		return Token{}, fmt.Errorf("parse token: %w: the secret is not %d bytes in base64url", ErrToken, TokenSecretBytes)
	}
	copy(t.Secret[:], secret)
	if t.Text() != text { // the decoder passes over line ends
		return Token{}, fmt.Errorf("parse token: %w: a line end in the secret", ErrToken)
	}
	return t, nil
}

// Unassigned names no account: a device keeps under it what it captures before it has a credential.
const Unassigned = "unassigned"

// ValidName reports whether s may name an account or a device: 1 to 63 of a-z, 0-9 and hyphen, and not Unassigned.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName || s == Unassigned {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
