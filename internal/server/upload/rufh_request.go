package upload

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// metaWantDigest is where a creation in the IETF dialect keeps that its client wants the digest back, among the words that
// a tus client may say of its file: the upload is one and the same in both dialects.
const metaWantDigest = "want-repr-digest"

// algorithm is the digest of the whole file that the server computes.
const algorithm = "sha-256"

// request is what the header of a creation or an append says.
type request struct {
	body Body
	// interim says that the client understands 104.
	interim bool
}

// readRequest reads what creations and appends have in common. Errors wrap wire.ErrInvalid.
func readRequest(w http.ResponseWriter, r *http.Request) (request, error) {
	req := request{body: body(w, r)}
	ends, ok := wire.ParseBoolean(r.Header.Values(wire.HeaderUploadComplete))
	if !ok {
		return req, missing(wire.HeaderUploadComplete, "?0 or ?1")
	}
	req.body.Ends, req.body.Overtakes = EndsLater, true
	if ends {
		req.body.Ends = EndsHere
	}
	if total, ok := wire.ParseInteger(r.Header.Values(wire.HeaderUploadLength)); ok {
		req.body.Total = &total
	}
	version, ok := wire.ParseInteger(r.Header.Values(wire.HeaderInteropVersion))
	req.interim = ok && version == wire.InteropVersion && r.ProtoAtLeast(1, 1)
	digests, err := wire.ParseDigests(r.Header.Values(wire.HeaderContentDigest))
	for name, digest := range digests {
		if sum, known := newSum(name, digest); known && name != "sha1" && name != "sha256" {
			req.body.Sums = append(req.body.Sums, sum)
		}
	}
	return req, invalid(err)
}

// creation is the upload that a request opens.
func (req request) creation(r *http.Request, who store.Identity) (Creation, error) {
	c := Creation{Length: store.UnknownLength}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return c, errCoding
	}
	if err := req.length(&c); err != nil {
		return c, err
	}
	words := describe(r)
	if err := declared(r, &c, words); err != nil {
		return c, err
	}
	c.Filename, c.MediaType = words[metaFilename], words[metaFiletype]
	var pairs []string
	for _, key := range []string{metaFilename, metaFiletype, metaWantDigest} {
		if words[key] != "" {
			pairs = append(pairs, key+" "+base64.StdEncoding.EncodeToString([]byte(words[key])))
		}
	}
	c.Metadata = strings.Join(pairs, ",")
	var err error
	c.AttachmentID, err = KeyedID(who, r.Header.Get(wire.HeaderIdempotencyKey))
	return c, err
}

// length tells the length of the upload. Errors: ErrLength where the request says two things of it.
func (req request) length(c *Creation) error {
	b := req.body
	if b.Total != nil {
		c.Length = *b.Total
	}
	switch {
	case b.Length < 0:
	case b.Ends == EndsHere && b.Total == nil:
		c.Length = b.Length
	case b.Ends == EndsHere && b.Length != c.Length, b.Total != nil && b.Length > c.Length:
		return ErrLength
	}
	return nil
}

// describe is what the client says of its file, in the words of Upload-Metadata. A name or type that cannot be read is none.
func describe(r *http.Request) map[string]string {
	words := map[string]string{}
	if _, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil {
		words[metaFiletype] = r.Header.Get("Content-Type")
	}
	if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Disposition")); err == nil {
		name := params["filename"]
		words[metaFilename] = name[strings.LastIndexAny(name, `/\`)+1:] // a name, never a place
	}
	return words
}

// declared reads the digest that the client declares of the whole file, and whether it wants it back. Other algorithms than
// the server's are passed over (RFC 9530, section 3).
func declared(r *http.Request, c *Creation, words map[string]string) error {
	digests, err := wire.ParseDigests(r.Header.Values(wire.HeaderReprDigest))
	if err != nil {
		return invalid(err)
	}
	if digest, there := digests[algorithm]; there {
		c.SHA256 = hex.EncodeToString(digest)
	}
	if wants(r) {
		words[metaWantDigest] = algorithm
	}
	return nil
}

// wants reports whether a request asks for the digest that the server has. A wish that is malformed is none.
func wants(r *http.Request) bool {
	weights, err := wire.ParseWants(r.Header.Values(wire.HeaderWantReprDigest))
	return err == nil && weights[algorithm] > 0
}

// wantsDigest reports whether the creation of a session did.
func wantsDigest(s store.Session) bool {
	words, err := ParseMetadata(s.Metadata)
	return err == nil && words[metaWantDigest] == algorithm
}

// reprDigest is a digest of the server's records as a header.
func reprDigest(sha string) string {
	digest, err := hex.DecodeString(sha)
	if err != nil {
		return "" // no record has it
	}
	return wire.FormatDigest(algorithm, digest)
}

var (
	errCoding     = errors.New("content coding is not taken")
	errComplete   = errors.New("upload is complete already")
	errReprDigest = errors.New("whole file has another digest")
)

func missing(header, what string) error {
	return fmt.Errorf("%w: %s is missing or not %s", wire.ErrInvalid, header, what)
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", wire.ErrInvalid, err)
}
