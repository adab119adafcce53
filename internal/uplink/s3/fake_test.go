package s3_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fake is a store in memory, for what a real one does not do on request. It does not look at signatures.
type fake struct {
	mu      sync.Mutex
	objects map[string]*kept
	uploads map[string]*upload
	opened  int
	// dumb: it tells no digests of what it holds.
	dumb bool
	// ahead is how far its clock is ahead of the device's; it refuses requests that are more than a quarter of an hour off.
	ahead time.Duration
}

type kept struct {
	content []byte
	sum     string // as the header has it
}

type upload struct {
	key   string
	parts map[int][]byte
}

func newFake() *fake { return &fake{objects: map[string]*kept{}, uploads: map[string]*upload{}} }

// holds returns the content of the object whose key contains id.
func (f *fake) holds(id string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, o := range f.objects {
		if strings.Contains(key, id) {
			return o.content
		}
	}
	return nil
}

func (f *fake) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.uploads)
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// refuse answers as a store does that refuses.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Amz-Request-Id", "1")
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	say(w, "<?xml version=\"1.0\"?>\n<Error><Code>"+code+"</Code><Message>words</Message><StringToSign>"+secretKey+"</StringToSign></Error>")
}

// say writes a body; a device that is gone already does not hear it.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().Add(f.ahead)
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	if signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || signed.Sub(now).Abs() > 15*time.Minute {
		refuse(w, http.StatusForbidden, "RequestTimeTooSkewed")
		return
	}
	w.Header().Set("X-Amz-Request-Id", "1")
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	id := q.Get("uploadId")
	switch {
	case key == "" && q.Has("uploads"):
		f.listUploads(w, q.Get("prefix"))
	case key == "":
		answer(w, "ListBucketResult", "")
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.opened++
		id := "upload-" + strconv.Itoa(f.opened)
		f.uploads[id] = &upload{key, map[int][]byte{}}
		answer(w, "InitiateMultipartUploadResult", "<UploadId>"+id+"</UploadId>")
	case id != "" && f.uploads[id] == nil:
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	case id != "":
		f.part(w, r, id, body)
	default:
		f.object(w, r, key, body)
	}
}

func answer(w http.ResponseWriter, root, inner string) {
	w.Header().Set("Content-Type", "application/xml")
	say(w, xml.Header+"<"+root+">"+inner+"</"+root+">")
}

func (f *fake) listUploads(w http.ResponseWriter, prefix string) {
	var b strings.Builder
	for id, u := range f.uploads {
		if strings.HasPrefix(u.key, prefix) {
			fmt.Fprintf(&b, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", u.key, id)
		}
	}
	answer(w, "ListMultipartUploadsResult", b.String())
}

// part is about an upload that is there.
func (f *fake) part(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	u := f.uploads[id]
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
		if err != nil || r.Header.Get("X-Amz-Checksum-Sha256") != sumOf(body) {
			refuse(w, http.StatusBadRequest, "BadDigest")
			return
		}
		u.parts[number] = body
		w.Header().Set("Etag", `"e"`)
	case http.MethodDelete:
		delete(f.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		var b strings.Builder
		for _, n := range u.numbers() {
			sum := ""
			if !f.dumb {
				sum = "<ChecksumSHA256>" + sumOf(u.parts[n]) + "</ChecksumSHA256>"
			}
			fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>e</ETag><Size>%d</Size>%s</Part>", n, len(u.parts[n]), sum)
		}
		answer(w, "ListPartsResult", b.String())
	case http.MethodPost:
		f.complete(w, r, id)
	}
}

func (u *upload) numbers() []int {
	var all []int
	for n := range u.parts {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request, id string) {
	u := f.uploads[id]
	if f.objects[u.key] != nil && r.Header.Get("If-None-Match") == "*" {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	var content, sums []byte
	for _, n := range u.numbers() {
		content = append(content, u.parts[n]...)
		sum := sha256.Sum256(u.parts[n])
		sums = append(sums, sum[:]...)
	}
	if r.Header.Get("X-Amz-Mp-Object-Size") != strconv.Itoa(len(content)) {
		refuse(w, http.StatusBadRequest, "InvalidRequest")
		return
	}
	sum := fmt.Sprintf("%s-%d", sumOf(sums), len(u.parts))
	f.objects[u.key] = &kept{content, sum}
	delete(f.uploads, id)
	answer(w, "CompleteMultipartUploadResult", "<ETag>e</ETag>")
}

func (f *fake) object(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	o := f.objects[key]
	switch {
	case r.Method == http.MethodPut && o != nil && r.Header.Get("If-None-Match") == "*":
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Checksum-Sha256") != sumOf(body):
		refuse(w, http.StatusBadRequest, "BadDigest")
	case r.Method == http.MethodPut:
		f.objects[key] = &kept{body, sumOf(body)}
		w.Header().Set("Etag", `"e"`)
	case o == nil:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		if !f.dumb {
			w.Header().Set("X-Amz-Checksum-Sha256", o.sum)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(o.content)))
		if r.Method == http.MethodGet {
			say(w, string(o.content))
		}
	}
}
