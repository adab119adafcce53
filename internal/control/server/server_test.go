package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/user"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

var someIDs = []attachment.ID{
	"0197f3a2-4c1d-7abc-8def-0123456789ab",
	"0197f3a2-4c1e-7abc-8def-0123456789ac",
	"0198f3a2-4c1e-7abc-8def-0123456789ac",
}

// Every list and document is complete JSON of its schema even when the backend has nothing to say: no null lists.
func TestEmptyAnswers(t *testing.T) {
	v := serve(t, &stub{ids: someIDs}, nil)
	for target, want := range map[string][]string{
		"/v1/status":                            {`"schema":"fieldgw.status/v1"`, `"counts":[]`, `"watches":[]`, `"problems":[]`},
		"/v1/attachments":                       {`"schema":"fieldgw.item-list/v1"`, `"items":[]`},
		"/v1/attachments/" + string(someIDs[0]): {`"schema":"fieldgw.item/v1"`, `"journal":[]`},
		"/v1/not-taken":                         {`"schema":"fieldgw.not-taken-list/v1"`, `"items":[]`},
		"/v1/records":                           {`"schema":"fieldgw.record-list/v1"`, `"items":[]`},
	} {
		status, data := v.ask(t, http.MethodGet, target, "", nil)
		for _, part := range want {
			if status != http.StatusOK || !strings.Contains(string(data), part) {
				t.Errorf("%s: %d without %s in %s", target, status, part, data)
			}
		}
	}
}

// What a request asks for reaches the backend: conditions once each, exact bytes of a record's ID, time in UTC, limits.
func TestListQuery(t *testing.T) {
	asked := make(chan control.ListQuery, 1)
	v := serve(t, &stub{list: func(q control.ListQuery) (control.Page[control.Item], error) {
		asked <- q
		return control.Page[control.Item]{NextCursor: "more"}, nil
	}}, nil)
	_, data := v.ask(t, http.MethodGet, "/v1/attachments?condition=waiting&condition=paused&condition=waiting&parent=a%ff%0Ab&adopted_before="+
		"2025-11-30T10:14:05%2B01:00&cursor=c&limit=7", "", nil)
	want := control.ListQuery{
		Conditions: []attachment.Condition{attachment.ShownWaiting, attachment.ShownPaused}, Parent: attachment.NameOf("a\xff\nb"),
		AdoptedBefore: time.Date(2025, 11, 30, 9, 14, 5, 0, time.UTC), Cursor: "c", Limit: 7,
	}
	if got := receive(t, asked); !reflect.DeepEqual(got, want) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	if !strings.Contains(string(data), `"next_cursor":"more"`) {
		t.Errorf("no cursor in %s", data)
	}
	v.ask(t, http.MethodGet, "/v1/attachments", "", nil)
	if got := receive(t, asked); got.Limit != control.DefaultPage {
		t.Errorf("limit %d", got.Limit)
	}
}

// Malformed requests are refused with a code, never guessed at.
func TestRefusals(t *testing.T) {
	b := &stub{ids: someIDs}
	v := serve(t, b, nil)
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		code           control.Code
		method, target string
		body           string
	}{
		{control.CodeNoSuchRoute, "GET", "/v2/status", ""},
		{control.CodeNoSuchRoute, "POST", "/v1/status", ""},
		{control.CodeNoSuchRoute, "GET", "/v1/attachments/retry/all", ""},
		{control.CodeInvalid, "GET", "/v1/status?verbose=1", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?limit=0", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?limit=1001", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?limit=x", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?condition=lost", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?adopted_before=yesterday", ""},
		{control.CodeInvalid, "GET", "/v1/attachments?cursor=" + long, ""},
		{control.CodeInvalid, "GET", "/v1/attachments?parent=" + long, ""},
		{control.CodeInvalid, "GET", "/v1/attachments?%zz", ""},
		{control.CodeInvalid, "GET", "/v1/not-taken?parent=x", ""},
		{control.CodeInvalid, "GET", "/v1/records?condition=waiting", ""},
		{control.CodeInvalid, "GET", "/v1/attachments/019", ""},
		{control.CodeNoSuchItem, "GET", "/v1/attachments/" + long, ""},
		{control.CodeNoSuchItem, "GET", "/v1/attachments/photo.jpg", ""},
		{control.CodeNoSuchItem, "GET", "/v1/attachments/ffff", ""},
		{control.CodeNoSuchItem, "GET", "/v1/attachments/0199f3a2-4c1d-7abc-8def-0123456789ab", ""},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", ""},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", "{}"},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", `{"all":true} {"all":true}`},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", `{"all":true}}`},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", `{"all":true,"until":"tomorrow"}`},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", `{"all":true,"reason":"` + long + `"}`},
		{control.CodeInvalid, "POST", "/v1/attachments/retry", `{"all":true,"reason":"` + strings.Repeat("x", control.MaxBody) + `"}`},
		{control.CodeInvalid, "POST", "/v1/channel/pause", `{"for":"2h"}`},
		{control.CodeInvalid, "POST", "/v1/channel/pause", `[]`},
		{control.CodeInvalid, "POST", "/v1/submissions", `{}`},
	} {
		v.refused(t, c.code, c.method, c.target, "application/json", strings.NewReader(c.body))
	}
	if len(b.actions)+len(b.channel) > 0 {
		t.Errorf("a refused request was carried out: %v %v", b.actions, b.channel)
	}
}

// Attachments are found by their whole ID, by a beginning and by an end; several that fit are named and not chosen from.
func TestReferences(t *testing.T) {
	v := serve(t, &stub{ids: someIDs}, nil)
	for ref, want := range map[string]attachment.ID{
		string(someIDs[1]): someIDs[1], strings.ToUpper(string(someIDs[1])): someIDs[1], "0198": someIDs[2], "89ab": someIDs[0],
		"0197f3a2-4c1e": someIDs[1],
	} {
		status, data := v.ask(t, http.MethodGet, "/v1/attachments/"+ref, "", nil)
		var d control.ItemDetail
		if err := json.Unmarshal(data, &d); err != nil || status != http.StatusOK || d.ID != want {
			t.Errorf("%s: %d, %v, %s", ref, status, err, d.ID)
		}
	}
	problem := v.refused(t, control.CodeAmbiguous, http.MethodGet, "/v1/attachments/89ac", "", nil)
	if !slices.Equal(problem.Candidates, someIDs[1:]) {
		t.Errorf("candidates %v", problem.Candidates)
	}
}

// A decision reaches the backend once for each attachment, with whole IDs and the caller that the kernel names; a reference
// that fits nothing or too much is refused by itself and does not stop the others.
func TestActions(t *testing.T) {
	b := &stub{ids: someIDs}
	v := serve(t, b, nil)
	out := post(t, v, "/v1/attachments/pause", `{"ids":["89ab","ffff","89ac","0197f3a2-4c1d","0198"],"reason":"rain","dry_run":true}`)
	if out.Done != 2 || out.Refused != 2 || !out.DryRun || out.Schema != control.SchemaAction {
		t.Errorf("outcome %+v", out)
	}
	for _, r := range out.Results {
		if want := map[attachment.ID]control.Code{"ffff": control.CodeNoSuchItem, "89ac": control.CodeAmbiguous}[r.ID]; r.Code != want || r.Done != (want == "") {
			t.Errorf("%+v", r)
		}
	}
	post(t, v, "/v1/attachments/retry", `{"all":true}`)
	post(t, v, "/v1/attachments/resume", `{"record":{"text":"INS-1"}}`)
	if out := post(t, v, "/v1/attachments/retry", `{"ids":["ffff"]}`); out.Refused != 1 {
		t.Errorf("outcome %+v", out)
	}
	want := []control.Action{
		{IDs: []attachment.ID{someIDs[0], someIDs[2]}, Reason: "rain", DryRun: true}, {All: true}, {Record: attachment.NameOf("INS-1")},
	}
	if !reflect.DeepEqual(b.actions, want) {
		t.Errorf("asked for %+v", b.actions)
	}
	post(t, v, "/v1/channel/pause", `{"reason":"night"}`)
	post(t, v, "/v1/channel/resume", `{}`)
	if !reflect.DeepEqual(b.channel, []control.ChannelAction{{Reason: "night"}, {}}) {
		t.Errorf("channel: %+v", b.channel)
	}
	if len(b.by) != 5 {
		t.Fatalf("%d callers", len(b.by))
	}
	me := own()
	if u, err := user.Current(); err == nil {
		me.User = u.Username
	}
	for _, by := range b.by {
		if by != me {
			t.Errorf("caller %+v, want %+v", by, me)
		}
	}
}

// A caller's name in the journal says who it was, and cannot forge a line.
func TestCallerString(t *testing.T) {
	for want, c := range map[string]Caller{
		"uid 1000 (anna)": {UID: 1000, User: "anna"}, "uid 7": {UID: 7}, `uid 8 (a\nb)`: {UID: 8, User: "a\nb"},
	} {
		if c.String() != want {
			t.Errorf("%q, want %q", c, want)
		}
	}
}

// A failure of the backend is told as such and logged; a refusal keeps its code when it is wrapped and is not logged.
func TestBackendErrors(t *testing.T) {
	var fail error
	v := serve(t, &stub{status: func() (control.Status, error) { return control.Status{}, fail }}, nil)
	fail = fmt.Errorf("count: %w", &control.Error{Title: "Queue", Status: 503, Code: control.CodeQueueUnavailable})
	v.refused(t, control.CodeQueueUnavailable, http.MethodGet, "/v1/status", "", nil)
	if v.log.String() != "" {
		t.Errorf("logged %s", v.log)
	}
	fail = errors.New("disk on fire")
	if p := v.refused(t, control.CodeInternal, http.MethodGet, "/v1/status", "", nil); p.Detail != "disk on fire" {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(v.log.String(), "disk on fire") {
		t.Errorf("not logged: %q", v.log)
	}
}

// A listener that fails ends Run with an error; a context that ends is an orderly stop.
func TestRunEnds(t *testing.T) {
	l := mustListen(t, t.TempDir()+"/s", "")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := New(&stub{}, Options{Logger: discard()})
	if err := s.Run(t.Context(), l); err == nil {
		t.Error("no error from a closed listener")
	}
	v := serve(t, &stub{}, nil)
	v.ask(t, http.MethodGet, "/v1/status", "", nil)
	if err := v.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// Requests that hold a slot are bounded; the one too many is told to come again.
func TestSlots(t *testing.T) {
	s := make(slots, 1)
	release, err := s.take()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.take()
	if problem, ok := errors.AsType[*control.Error](err); !ok || problem.Code != control.CodeBusy {
		t.Errorf("second: %v", err)
	}
	release()
	if _, err := s.take(); err != nil {
		t.Errorf("after release: %v", err)
	}
}
