package upload

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// maxMetadata bounds what is kept of a client's own words, in bytes: the longest known values fit.
const maxMetadata = 8 << 10

// What a tus client may say of its file (tus 1.0.0, Upload-Metadata). Other keys are kept and given back.
const (
	metaFilename   = "filename"
	metaFiletype   = "filetype"
	metaSHA256     = "sha256"
	metaAttachment = "attachment_id"
	metaParent     = "parent"
)

// ParseMetadata reads the value of Upload-Metadata: pairs of a key and its value in base64, with commas between them.
// Errors wrap wire.ErrInvalid.
func ParseMetadata(text string) (map[string]string, error) {
	bad := func(what string, args ...any) (map[string]string, error) {
		return nil, fmt.Errorf("%w: Upload-Metadata: "+what, append([]any{wire.ErrInvalid}, args...)...)
	}
	values := map[string]string{}
	if len(text) > maxMetadata {
		return bad("it is longer than %d bytes", maxMetadata)
	}
	if text == "" {
		return values, nil
	}
	for n, pair := range strings.Split(text, ",") {
		key, encoded, _ := strings.Cut(strings.Trim(pair, " \t"), " ")
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return bad("pair %d has no key of printing ASCII", n+1)
		}
		if _, twice := values[key]; twice {
			return bad("%q is there twice", key)
		}
		value, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || base64.StdEncoding.EncodeToString(value) != encoded { // the decoder passes over line ends
			return bad("the value of %q is not base64", key)
		}
		values[key] = string(value)
	}
	return values, nil
}

// described is the creation that a client's metadata describes. Errors wrap wire.ErrInvalid.
func described(text string) (Creation, error) {
	values, err := ParseMetadata(text)
	if err != nil {
		return Creation{}, err
	}
	for _, key := range []string{metaFilename, metaFiletype, metaSHA256, metaAttachment, metaParent} {
		value, there := values[key]
		if !utf8.ValidString(value) || key != metaParent && key != metaFilename && strings.ContainsFunc(value, unicode.IsControl) {
			return Creation{}, fmt.Errorf("%w: Upload-Metadata: %s is no text", wire.ErrInvalid, key)
		}
		if there && value == "" && (key == metaSHA256 || key == metaAttachment) {
			return Creation{}, fmt.Errorf("%w: Upload-Metadata: %s is empty", wire.ErrInvalid, key)
		}
	}
	c := Creation{
		Length: store.UnknownLength, SHA256: values[metaSHA256], MediaType: values[metaFiletype], Filename: values[metaFilename],
		AttachmentID: values[metaAttachment], Metadata: text,
	}
	c.Parent.LocalID = values[metaParent]
	return c, nil
}
