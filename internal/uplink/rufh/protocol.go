package rufh

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Protocol is Resumable Uploads for HTTP as servers of other hands speak it.
func Protocol() *remote.Protocol {
	final := []int{200, 201, 202, 203, 204, 205} // the answer of whatever takes the file
	return &remote.Protocol{
		Name: "resumable upload",
		Ours: ours,
		Accepts: map[remote.Step][]int{
			remote.StepProbe:   {200, 204},
			remote.StepReserve: final,
			remote.StepOffset:  {200, 204},
			remote.StepAppend:  final,
			remote.StepVerify:  {200, 204, 206},
			remote.StepCancel:  {200, 202, 204, 404, 410},
		},
		Problem: problem,
		Probe: func(ctx context.Context, c *remote.Client) error {
			_, err := discover(ctx, c)
			return err
		},
		Anonymous: true,
		Redirects: true,
	}
}

// discover asks for the limits of uploads that are created at the endpoint (draft, Limits); the answer is what tells the
// server from others.
func discover(ctx context.Context, c *remote.Client) (wire.UploadLimit, error) {
	resp, err := c.Do(ctx, remote.Request{Step: remote.StepProbe, Method: http.MethodOptions, Header: Header()})
	if err != nil {
		return wire.UploadLimit{}, err
	}
	limit, _ := wire.ParseUploadLimit(resp.Header.Values(wire.HeaderUploadLimit))
	return limit, nil
}

// marks are the headers by which an answer is known.
var marks = []string{wire.HeaderUploadLimit, wire.HeaderUploadComplete, wire.HeaderUploadOffset}

// bare are the refusals of an upload that servers, and what authorizes in front of them, say without a mark.
var bare = []int{http.StatusNotFound, http.StatusGone, http.StatusLocked}

// ours tells a server of this protocol from others. Most of its answers must carry one of its headers; where none must, the
// address is one that the server gave before, or its endpoint was found to know the protocol.
func ours(step remote.Step, resp *http.Response) bool {
	marked := slices.ContainsFunc(marks, func(name string) bool { return resp.Header.Get(name) != "" })
	switch {
	case step == remote.StepProbe && resp.StatusCode < 300:
		return resp.Header.Get(wire.HeaderUploadLimit) != ""
	case marked, isProblem(resp.Header):
		return true
	case resp.StatusCode == http.StatusUnauthorized:
		return resp.Header.Get("WWW-Authenticate") != ""
	case step == remote.StepReserve:
		return resp.StatusCode == http.StatusCreated && resp.Header.Get("Location") != ""
	case step == remote.StepVerify && resp.Request != nil && resp.Request.Method == http.MethodGet:
		return true // content that is read back; its digest tells
	case step == remote.StepCancel && resp.StatusCode < 300:
		return true
	}
	return step != remote.StepProbe && slices.Contains(bare, resp.StatusCode)
}

func isProblem(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == wire.ContentTypeProblem
}

// types are the problem types of the draft.
var types = map[string]wire.Code{
	wire.TypeUploadOffset: wire.CodeOffsetMismatch,
	wire.TypeUploadLength: wire.CodeInvalid,
}

// problem understands a refusal: by its type, by a code of ours where the server has those, and by Upload-Complete.
func problem(resp *http.Response, body []byte) (wire.Code, string, error) {
	var said struct {
		Type, Title, Detail string
		Code                wire.Code
	}
	if !isProblem(resp.Header) || json.Unmarshal(body, &said) != nil {
		said.Type, said.Title, said.Detail, said.Code = "", "", "", ""
	}
	detail := said.Detail
	if detail == "" {
		detail = said.Title
	}
	if code, known := types[said.Type]; known {
		return code, detail, nil
	}
	if said.Code != "" && said.Code.Status() == resp.StatusCode {
		return said.Code, detail, nil
	}
	if complete, ok := wire.ParseBoolean(resp.Header.Values(wire.HeaderUploadComplete)); ok && complete {
		return remote.CodeFinal, detail, nil
	}
	creation := resp.Request != nil && resp.Request.Method == http.MethodPost
	switch {
	case creation && resp.StatusCode == http.StatusRequestEntityTooLarge:
		return wire.CodeSizeLimit, detail, nil
	case creation && resp.StatusCode == http.StatusUnsupportedMediaType:
		return wire.CodeMediaType, detail, nil
	}
	return "", detail, nil
}
