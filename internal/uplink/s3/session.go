package s3

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

const (
	// MinPart is the smallest part but the last, in bytes, and maxParts how many there can be (Amazon S3 User Guide,
	// "Amazon S3 multipart upload limits").
	MinPart  = 5 << 20
	maxParts = 10000
	maxPart  = 5 << 30

	// whole is the ID of a session without an upload of parts.
	whole  = "put"
	maxKey = 1024 // bytes
)

// partSize is how much of a file is sent at a time.
func partSize(floor, chunk, length int64) int64 {
	return max(floor, chunk, (length+maxParts-1)/maxParts)
}

// address is what a session is about. It stays what it was when the session began, whatever the file is named after later.
type address struct {
	bucket, key string
	part        int64
}

func (a address) session(id string) attachment.Session {
	return attachment.Session{ID: id, URL: (&url.URL{
		Scheme: "s3", Host: a.bucket, Path: "/" + a.key, RawQuery: "part=" + strconv.FormatInt(a.part, 10),
	}).String()}
}

// location names the object for people and other programs.
func (a address) location() string {
	return (&url.URL{Scheme: "s3", Host: a.bucket, Path: "/" + a.key}).String()
}

// addressOf reads a session's URL. One of another driver is none.
func addressOf(s attachment.Session) (address, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.Fragment != "" || s.ID == "" {
		return address{}, errors.New("not a session of this driver")
	}
	size, named := strings.CutPrefix(u.RawQuery, "part=")
	part, err := strconv.ParseInt(size, 10, 64)
	key := strings.TrimPrefix(u.Path, "/")
	if !named || err != nil || part < 1 || part > maxPart || key == "" || len(key) > maxKey || !utf8.ValidString(key) {
		return address{}, fmt.Errorf("not an object with parts: part size %.20q, a key of %d bytes", size, len(key))
	}
	return address{u.Host, key, part}, nil
}

// mediaID is the key, or the hash of one that a receipt cannot show.
func (a address) mediaID() string {
	if len(a.key) <= receipt.MaxName && !strings.ContainsFunc(a.key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return a.key
	}
	sum := sha256.Sum256([]byte(a.key))
	return "key-sha256:" + hex.EncodeToString(sum[:])
}
