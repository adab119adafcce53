package control_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The JSON of every document is the one in testdata: a member that vanishes or changes its name breaks callers, so a
// difference here must be an addition. The values are filled by reflection, so a new field cannot be forgotten.
func TestSchemaGolden(t *testing.T) {
	documents := map[string]any{
		"status":         &control.Status{},
		"item":           &control.ItemDetail{},
		"item-list":      &control.Page[control.Item]{},
		"not-taken-list": &control.Page[control.NotTaken]{},
		"record-list":    &control.Page[control.Record]{},
		"outcome":        &control.Outcome{},
		"action":         &control.Action{},
		"channel-action": &control.ChannelAction{},
		"submission":     &control.Submission{},
		"submitted":      &control.SubmissionResult{},
		"transition":     &control.Transition{},
		"error":          &control.Error{},
	}
	for name, document := range documents {
		fill(reflect.ValueOf(document).Elem())
		got, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		file := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s differs from %s:\n%s", name, file, got)
		}
		back := reflect.New(reflect.TypeOf(document).Elem())
		if err := json.Unmarshal(got, back.Interface()); err != nil {
			t.Errorf("%s cannot be read back: %v", name, err)
		} else if !reflect.DeepEqual(back.Interface(), document) {
			t.Errorf("%s is not the same after reading it back", name)
		}
	}
}

// fill gives every field a value that is not zero.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2025, 11, 30, 9, 14, 5, 0, time.UTC)))
		return
	case attachment.Name:
		v.Set(reflect.ValueOf(attachment.NameOf("photo\xff.jpg")))
		return
	case receipt.Receipt:
		v.Set(reflect.ValueOf(receipt.Receipt{AttachmentID: "id", MediaID: "media", Length: 7, Grade: receipt.Registered}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(7)
	case reflect.Uint64, reflect.Uint8, reflect.Uint32:
		v.SetUint(7)
	}
}

// Every reason code gets a complete answer to "why is it waiting": a sentence, a trigger, somebody and something to do, and
// a command that names the item or is left out.
func TestWhy(t *testing.T) {
	const id = attachment.ID("0197f3a2-4c1d-7abc-8def-0123456789ab")
	since := time.Date(2025, 11, 30, 9, 14, 5, 0, time.UTC)
	known := []string{
		control.TriggerTurn, control.TriggerTime, control.TriggerNetwork, control.TriggerConfiguration, control.TriggerPerson,
		control.TriggerSpace, control.TriggerFile, control.TriggerService,
	}
	for _, advice := range attachment.Codes() {
		w := control.Why(advice.Code, id, since)
		if w.Message == "" || len(w.Unblock) != 1 || w.Unblock[0].Action == "" || w.Unblock[0].Who == "" || !w.Since.Equal(since) {
			t.Errorf("%s: %+v is incomplete", advice.Code, w)
		}
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+w.NextTrigger+" ") {
			t.Errorf("%s: trigger %q is not documented", advice.Code, w.NextTrigger)
		}
		if strings.HasSuffix(w.Unblock[0].Command, " ID") {
			t.Errorf("%s: command %q is not complete", advice.Code, w.Unblock[0].Command)
		}
		general := control.Why(advice.Code, "", since)
		if c := general.Unblock[0].Command; strings.HasSuffix(c, " ") || strings.HasSuffix(c, " ID") {
			t.Errorf("%s: command %q without an item", advice.Code, c)
		}
	}
	if got := control.Why(attachment.HoldPaused, id, since).Unblock[0].Command; got != "fieldgwctl resume "+string(id) {
		t.Errorf("command is %q", got)
	}
	if got := control.Why(attachment.HoldChannelPaused, "", since).Unblock[0].Command; got != "fieldgwctl resume" {
		t.Errorf("command is %q", got)
	}
}

// References mean an ID by its beginning or its end, in any case, and nothing when they are too short.
func TestRefers(t *testing.T) {
	const id = attachment.ID("0197f3a2-4c1d-7abc-8def-0123456789ab")
	for ref, want := range map[string]bool{
		string(id): true, "0197": true, "0197F3A2-4C": true, "89ab": true, control.ShortID(id): true, "456789AB": true,
		"197f": false, "9ab": false, "": false, "89ac": false, string(id) + "0": false,
	} {
		if control.Refers(ref, id) != want {
			t.Errorf("Refers(%q) is %v", ref, !want)
		}
	}
}

// What was found for a reference becomes one ID or a refusal that names candidates; a whole ID is never ambiguous.
func TestResolve(t *testing.T) {
	var many []attachment.ID
	for range control.MaxCandidates + 3 {
		id, err := attachment.NewID()
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, id)
	}
	if id, err := control.Resolve("x", many[:1]); err != nil || id != many[0] {
		t.Errorf("one: %v, %v", id, err)
	}
	if id, err := control.Resolve(string(many[1]), many); err != nil || id != many[1] {
		t.Errorf("whole: %v, %v", id, err)
	}
	for ref, c := range map[string]struct {
		found []attachment.ID
		code  control.Code
		named int
	}{"none": {nil, control.CodeNoSuchItem, 0}, "many": {many, control.CodeAmbiguous, control.MaxCandidates}} {
		_, err := control.Resolve(ref, c.found)
		problem, ok := errors.AsType[*control.Error](err)
		if !ok || problem.Code != c.code || len(problem.Candidates) != c.named {
			t.Errorf("%s: %v with %d candidates", ref, err, len(problem.Candidates))
		}
	}
}

// An action selects in exactly one way and within its limits.
func TestActionValidate(t *testing.T) {
	id := attachment.ID("0197f3a2")
	record := attachment.NameOf("INS-1")
	long := strings.Repeat("x", control.MaxReason+1)
	for name, c := range map[string]struct {
		a    control.Action
		want bool
	}{
		"IDs":              {control.Action{IDs: []attachment.ID{id}}, true},
		"all":              {control.Action{All: true}, true},
		"record":           {control.Action{Record: record, Reason: "because"}, true},
		"nothing":          {control.Action{}, false},
		"IDs and all":      {control.Action{IDs: []attachment.ID{id}, All: true}, false},
		"all and record":   {control.Action{All: true, Record: record}, false},
		"too many":         {control.Action{IDs: make([]attachment.ID, control.MaxActionIDs+1)}, false},
		"long reason":      {control.Action{All: true, Reason: long}, false},
		"long record":      {control.Action{Record: attachment.NameOf(strings.Repeat("x", control.MaxRecordID+1))}, false},
		"reason that fits": {control.Action{All: true, Reason: long[1:]}, true},
	} {
		err := c.a.Validate()
		if problem, ok := errors.AsType[*control.Error](err); (err == nil) != c.want || !c.want && (!ok || problem.Code != control.CodeInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&control.ChannelAction{Reason: long}).Validate(); err == nil {
		t.Error("a long reason for the channel is accepted")
	}
}

// A submission names files, not paths, and contradicting forms of a name are brought into one.
func TestSubmissionValidate(t *testing.T) {
	const uuid = "6b1f2f0e-36a5-4c6f-9a57-1f0a3b0a7c11"
	file := func(name string) control.SubmissionFile {
		return control.SubmissionFile{Name: attachment.NameOf(name), Length: 3}
	}
	good := control.Submission{SubmissionID: uuid, Files: []control.SubmissionFile{file("a.jpg"), file("b\xff.jpg"), file("...")}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	bad := map[string]control.Submission{
		"no ID":        {Files: good.Files},
		"upper-case":   {SubmissionID: strings.ToUpper(uuid), Files: good.Files},
		"no files":     {SubmissionID: uuid},
		"many files":   {SubmissionID: uuid, Files: make([]control.SubmissionFile, control.MaxSubmissionFiles+1)},
		"long record":  {SubmissionID: uuid, Files: good.Files, Record: attachment.NameOf(strings.Repeat("x", control.MaxRecordID+1))},
		"negative":     {SubmissionID: uuid, Files: []control.SubmissionFile{{Name: attachment.NameOf("a"), Length: -1}}},
		"huge":         {SubmissionID: uuid, Files: []control.SubmissionFile{{Name: attachment.NameOf("a"), Length: control.MaxFileLength + 1}}},
		"long path":    {SubmissionID: uuid, Files: []control.SubmissionFile{{Name: attachment.NameOf("a"), SourcePath: attachment.NameOf(strings.Repeat("x", control.MaxPath+1))}}},
		"hidden slash": {SubmissionID: uuid, Files: []control.SubmissionFile{{Name: attachment.Name{Text: "a", Raw: []byte("../a")}}}},
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00b", strings.Repeat("x", control.MaxFilename+1)} {
		bad["name "+name] = control.Submission{SubmissionID: uuid, Files: []control.SubmissionFile{file(name)}}
	}
	for name, s := range bad {
		if problem, ok := errors.AsType[*control.Error](s.Validate()); !ok || problem.Code != control.CodeInvalid {
			t.Errorf("%s is accepted", name)
		}
	}
	two := control.Submission{SubmissionID: uuid, Files: []control.SubmissionFile{{Name: attachment.Name{Text: "shown", Raw: []byte("real")}}}}
	if err := two.Validate(); err != nil || !reflect.DeepEqual(two.Files[0].Name, attachment.NameOf("real")) {
		t.Errorf("%+v, %v", two.Files[0].Name, err)
	}
}

// The answer to an action keeps a bounded number of results and counts them all.
func TestOutcomeIsBounded(t *testing.T) {
	var o control.Outcome
	for i := range control.MaxResults + 10 {
		o.Add(control.ActionResult{Done: i%2 == 0})
	}
	if len(o.Results) != control.MaxResults || !o.Cut || o.Done+o.Refused != control.MaxResults+10 || o.Done != o.Refused {
		t.Errorf("%d results, cut %v, %d done, %d refused", len(o.Results), o.Cut, o.Done, o.Refused)
	}
}

// Each of the reasons for attention is enough, and a healthy, offline or paused gateway needs nobody.
func TestNeedsAttention(t *testing.T) {
	damage := "freelist"
	for name, c := range map[string]struct {
		change func(*control.Status)
		want   bool
	}{
		"healthy": {func(*control.Status) {}, false},
		"offline": {func(s *control.Status) { s.Sending.Channel = control.Why(attachment.HoldOffline, "", time.Time{}) }, false},
		"paused": {func(s *control.Status) {
			s.Sending.Channel = control.Why(attachment.HoldChannelPaused, "", time.Time{})
		}, false},
		"warning":     {func(s *control.Status) { s.Problems = []control.Problem{{Severity: control.SeverityWarning}} }, false},
		"delivered":   {func(s *control.Status) { s.Counts = []control.Count{{Condition: attachment.ShownDelivered, Items: 4}} }, false},
		"credentials": {func(s *control.Status) { s.Sending.Channel = control.Why(attachment.HoldCredentials, "", time.Time{}) }, true},
		"no credential": {func(s *control.Status) {
			s.Sending.Channel = control.Why(attachment.HoldCredentialUnusable, "", time.Time{})
		}, true},
		"degraded":       {func(s *control.Status) { s.Degraded = &damage }, true},
		"not configured": {func(s *control.Status) { s.Configured = false }, true},
		"blocked": {func(s *control.Status) {
			s.Capture.Blocked = control.Why(attachment.HoldStorageReserve, "", time.Time{})
		}, true},
		"attention": {func(s *control.Status) { s.Counts = []control.Count{{Condition: attachment.ShownAttention, Items: 1}} }, true},
		"review":    {func(s *control.Status) { s.Counts = []control.Count{{Condition: attachment.ShownReview, Items: 1}} }, true},
		"error":     {func(s *control.Status) { s.Problems = []control.Problem{{Severity: control.SeverityError}} }, true},
	} {
		s := control.Status{Configured: true}
		c.change(&s)
		if s.NeedsAttention() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// Every code has a title and a status that fits, and an unknown one is still a failure.
func TestRefuse(t *testing.T) {
	for _, code := range []control.Code{
		control.CodeInvalid, control.CodeNotPermitted, control.CodeNoSuchItem, control.CodeNoSuchRoute, control.CodeAmbiguous,
		control.CodeNotPossible, control.CodeSubmissionReused, control.CodeLengthMismatch, control.CodeInterrupted,
		control.CodeInternal, control.CodeQueueUnavailable, control.CodeBusy, control.CodeShuttingDown, control.CodeStorageFull,
		control.CodeQueueFull,
	} {
		e := control.Refuse(code, "detail")
		if e.Code != code || e.Title == "" || e.Status < 400 || e.Status > 599 || e.Schema != control.SchemaError || e.Detail != "detail" {
			t.Errorf("%s: %+v", code, e)
		}
		if code != control.CodeInternal && e.Status == 500 {
			t.Errorf("%s is not in the table", code)
		}
	}
	if e := control.Refuse("new", ""); e.Status != 500 || e.Code != "new" || e.Error() == "" {
		t.Errorf("unknown: %+v", e)
	}
	if a, b := control.Refuse(control.CodeBusy, "a"), control.Refuse(control.CodeBusy, "b"); a.Detail == b.Detail {
		t.Error("refusals share their detail")
	}
}
