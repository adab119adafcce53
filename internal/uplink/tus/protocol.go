package tus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Protocol is tus 1.0.0 as servers of other hands speak it.
func Protocol() *remote.Protocol {
	return &remote.Protocol{
		Name: "tus",
		Ours: ours,
		Accepts: map[remote.Step][]int{
			remote.StepProbe:   {200, 204},
			remote.StepReserve: {200, 201}, // 200: @uploadx/core, to a file of no bytes
			remote.StepOffset:  {200, 204},
			remote.StepAppend:  {200, 204},
			remote.StepVerify:  {200, 204, 206},
			remote.StepCancel:  {200, 204, 404, 410},
		},
		Problem: problem,
		Probe: func(ctx context.Context, c *remote.Client) error {
			_, err := c.Do(ctx, remote.Request{Step: remote.StepProbe, Method: http.MethodOptions})
			return err
		},
		CheckCredential: foreign.CheckCredential, Authorize: foreign.Authorize, Anonymous: true,
	}
}

// ours tells a tus server by the header that each of its answers carries. That to OPTIONS may name the versions alone, as one
// to a version that it does not speak; that to GET is no part of the protocol, and only what can be made something of is
// believed without.
func ours(_ remote.Step, resp *http.Response) bool {
	method := ""
	if resp.Request != nil {
		method = resp.Request.Method
	}
	switch {
	case method == http.MethodGet && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent || slices.Contains(foreign.Unreadable, resp.StatusCode)):
		return true
	case method == http.MethodOptions || resp.StatusCode == http.StatusPreconditionFailed:
		return resp.Header.Get(wire.HeaderTusResumable) != "" || resp.Header.Get(wire.HeaderTusVersion) != ""
	}
	return resp.Header.Get(wire.HeaderTusResumable) == wire.TusVersion
}

// header has the protocol's mark, and pairs of names and values.
func header(pairs ...string) http.Header {
	h := http.Header{wire.HeaderTusResumable: {wire.TusVersion}}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// words in the text of a refusal that say more than its status: those of tusd, and those of @tus/server.
var words = []struct {
	text string
	code wire.Code
}{
	{"ERR_UPLOAD_INTERRUPTED", wire.CodeBusy},
	{"Request aborted due to lock acquired", wire.CodeBusy},
	{"ERR_UPLOAD_LOCKED", wire.CodeBusy},
	{"ERR_LOCK_TIMEOUT", wire.CodeBusy},
	{"failed to acquire lock before timeout", wire.CodeBusy},
	{"ERR_SERVER_SHUTDOWN", wire.CodeShuttingDown},
	{"ERR_UPLOAD_SIZE_EXCEEDED", wire.CodeOffsetMismatch},
	{"upload's size exceeded", wire.CodeOffsetMismatch},
}

// problem understands a refusal. The protocol leaves the body to the server.
func problem(resp *http.Response, body []byte) (wire.Code, string, error) {
	detail := detailOf(body)
	for _, w := range words {
		if bytes.Contains(body, []byte(w.text)) {
			return w.code, detail, nil
		}
	}
	creation := resp.Request != nil && resp.Request.Method == http.MethodPost
	append := resp.Request != nil && resp.Request.Method == http.MethodPatch
	switch status := resp.StatusCode; {
	case status == http.StatusConflict:
		return wire.CodeOffsetMismatch, detail, nil
	case status == http.StatusPreconditionFailed:
		return wire.CodeTusVersion, detail, nil
	case creation && status == http.StatusRequestEntityTooLarge:
		return wire.CodeSizeLimit, detail, nil
	case creation && status == http.StatusUnsupportedMediaType:
		return wire.CodeMediaType, detail, nil
	case append && (status == 400 || status == 415 || status == 422 || status == 499):
		// Said of an append that broke off, too; what the session holds tells.
		return wire.CodeInvalid, detail, nil
	}
	return "", detail, nil
}

// detailOf is the server's text, or the message in it.
func detailOf(body []byte) string {
	var said struct {
		Detail  string
		Message string
		Error   struct{ Code, Message string }
	}
	if json.Unmarshal(body, &said) == nil {
		for _, text := range []string{said.Detail, said.Message, strings.TrimSpace(said.Error.Code + " " + said.Error.Message)} {
			if text != "" {
				return text
			}
		}
	}
	return strings.TrimSpace(string(body))
}

// features are what a server offers.
type features struct {
	extensions, algorithms []string
	maxSize                int64 // of a file; 0 for no limit
}

func (f features) has(extension string) bool { return slices.Contains(f.extensions, extension) }

// featuresIn reads the answer to OPTIONS. What cannot be read is not offered.
func featuresIn(resp *remote.Response) (features, error) {
	if versions := listed(resp.Header, wire.HeaderTusVersion); len(versions) > 0 && !slices.Contains(versions, wire.TusVersion) {
		return features{}, remote.Refused(remote.StepReserve, wire.CodeTusVersion)
	}
	f := features{extensions: listed(resp.Header, wire.HeaderTusExtension), algorithms: listed(resp.Header, wire.HeaderTusAlgorithms)}
	if n, err := strconv.ParseInt(resp.Header.Get(wire.HeaderTusMaxSize), 10, 64); err == nil && n > 0 {
		f.maxSize = n
	}
	return f, nil
}

// listed are the members of a header that is a list.
func listed(h http.Header, name string) []string {
	var all []string
	for _, line := range h.Values(name) {
		for member := range strings.SplitSeq(line, ",") {
			if member = strings.TrimSpace(member); member != "" {
				all = append(all, member)
			}
		}
	}
	return all
}

// metadata is what is said of an attachment at its creation. Servers show a file by filename and filetype; the rest is for
// who looks for it later.
func metadata(m *attachment.Manifest) string {
	var pairs []string
	for _, p := range []struct{ key, value string }{
		{"filename", m.Filename.Text}, {"filetype", m.MediaType}, {"attachment_id", string(m.ID)},
		{"parent", m.Parent.LocalID.Text}, {"sha256", m.SHA256.String()},
	} {
		if p.value != "" {
			pairs = append(pairs, p.key+" "+base64.StdEncoding.EncodeToString([]byte(p.value)))
		}
	}
	return strings.Join(pairs, ",")
}
