package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

const someID = "0197f3a2-0000-7000-8000-000000000001"

// A sidecar says what its schema allows, and every part of it arrives.
func TestParseFile(t *testing.T) {
	got, err := ParseFile([]byte(`{
  "version": 1, "parent": "INS-117 / Kessel", "captured_at": "2026-03-04T05:06:07+02:00", "role": "preview",
  "of": "` + someID + `", "priority": 9, "supersedes": "` + someID + `", "description": "Kesselraum \u00fcber T\u00fcr"
}`))
	want := Facts{
		Parent: "INS-117 / Kessel", CapturedAt: time.Date(2026, 3, 4, 3, 6, 7, 0, time.UTC), Role: attachment.RolePreview,
		Of: someID, Priority: 9, Supersedes: someID, Description: "Kesselraum über Tür",
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseFile([]byte(`{"version":1,"parent":"a"}`)); err != nil || got != (Facts{Parent: "a"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever is wrong is named at its place, and nothing of such a document counts.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"misspelt":          {"{\n  \"version\": 1,\n    \"parnet\": \"x\"\n}", `3:5: unknown key "parnet" (parent?)`},
		"unknown":           {`{"version":1,"parent":"x","gps":[1,{"a":null}],"priority":1}`, `1:27: unknown key "gps" (known are version, parent, captured_at, role, of, priority, supersedes, description)`},
		"other case":        {`{"version":1,"Parent":"x"}`, `1:14: unknown key "Parent" (parent?)`},
		"twice":             {`{"version":1,"parent":"x","parent":"y"}`, `1:27: the key "parent" stands here twice`},
		"twice by escape":   {`{"version":1,"parent":"x","p\u0061rent":"y"}`, `1:27: the key "parent" stands here twice`},
		"syntax":            {"{\"version\":1,\n\"parent\":}", "2:10: invalid character '}' looking for beginning of value"},
		"two documents":     {`{"version":1,"parent":"x"}{}`, "1:27: invalid character '{' after top-level value"},
		"cut off":           {`{"version":1,"parent"`, "1:21: unexpected end of JSON input"},
		"empty":             {" \n", "1:1: the file is empty"},
		"byte order mark":   {"\ufeff{}", "1:1: the file begins with a byte order mark (save it as UTF-8 without one)"},
		"not UTF-8":         {"{\"version\":1,\"parent\":\"\xff\"}", "1:24: this is not UTF-8"},
		"half a surrogate":  {`{"version":1,"parent":"\ud800"}`, "1:23: the string holds a character that was lost (U+FFFD stands for it)"},
		"an array":          {`[{"version":1}]`, "1:1: want an object in { }"},
		"null":              {`null`, "1:1: want an object in { }"},
		"no version":        {`{"parent":"x"}`, `1:1: the key "version" is missing ("version": 1)`},
		"newer version":     {`{"version":2,"parent":"x"}`, "1:12: version 2; this build reads version 1"},
		"version in quotes": {`{"version":"1","parent":"x"}`, "1:12: want a version, a whole number"},
		"no parent":         {`{"version":1}`, `1:1: the key "parent" is missing (it names the record that the file belongs to)`},
		"parent null":       {`{"version":1,"parent":null}`, "1:23: want a string in quotes"},
		"parent an object":  {`{"version":1,"parent":{"id":[1]},"priority":3}`, "1:23: want a string in quotes"},
		"parent empty":      {`{"version":1,"parent":""}`, "1:23: a record's ID is empty (leave the key out)"},
		"parent with NUL":   {`{"version":1,"parent":"a\u0000b"}`, "1:23: a record's ID holds a character that cannot be shown"},
		"parent too long":   {`{"version":1,"parent":"` + strings.Repeat("x", 1025) + `"}`, "1:23: a record's ID has at most 1024 bytes, this one has 1025"},
		"role":              {`{"version":1,"parent":"x","role":"thumb"}`, `1:34: want "original" or "preview", got "thumb"`},
		"preview of what":   {`{"version":1,"parent":"x","role":"preview"}`, `1:27: a preview needs the key "of" (the ID of what it is a preview of)`},
		"of an original":    {`{"version":1,"parent":"x","of":"` + someID + `"}`, `1:27: "of" belongs to role "preview" alone`},
		"priority":          {`{"version":1,"parent":"x","priority":10}`, "1:38: want a whole number from 0 to 9"},
		"priority 1.5":      {`{"version":1,"parent":"x","priority":1.5}`, "1:38: want a whole number from 0 to 9"},
		"priority a list":   {`{"version":1,"parent":"x","priority":[[1],2]}`, "1:38: want a whole number from 0 to 9"},
		"supersedes":        {`{"version":1,"parent":"x","supersedes":"latest"}`, `1:40: want the ID of an attachment, got "latest"`},
		"time":              {`{"version":1,"parent":"x","captured_at":"4.3.2026"}`, `1:41: want a time such as "2026-03-04T05:06:07Z", got "4.3.2026"`},
		"description":       {`{"version":1,"parent":"x","description":"a\u001b[2J"}`, "1:41: a description holds a character that cannot be shown"},
		"several":           {`{"version":1,"parent":"x","rolle":1,"priority":"high"}`, `1:27: unknown key "rolle" (role?), and 1 more`},
		"too large":         {`{"version":1,"parent":"x"}` + strings.Repeat(" ", MaxFile), "1:1: the file is larger than 65536 bytes"},
		"columns":           {`{"version":1,"parent":"ÄÖÜ","x":1}`, `1:29: unknown key "x" (known are version, parent, captured_at, role, of, priority, supersedes, description)`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseFile([]byte(c.text))
			var refused *Error
			if !errors.As(err, &refused) || err.Error() != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			if got.Parent != "" && err == nil {
				t.Errorf("taken: %+v", got)
			}
		})
	}
}

// A manifest speaks of many files, is taken or refused as a whole, and each entry's text is kept as it stands.
func TestParseManifest(t *testing.T) {
	files, err := ParseManifest([]byte(`{"version": 1, "files": { "a.jpg": {"parent":"A"} , "b ü.jpg":{ "parent" : "B", "priority":3 }}}`))
	if err != nil || len(files) != 2 || files["a.jpg"].Facts.Parent != "A" || string(files["a.jpg"].Text) != `{"parent":"A"}` ||
		files["b ü.jpg"].Facts.Priority != 3 || string(files["b ü.jpg"].Text) != `{ "parent" : "B", "priority":3 }` {
		t.Errorf("%+v, %v", files, err)
	}
	for text, want := range map[string]string{
		`{"version":1}`:            `1:1: the key "files" is missing`,
		`{"version":1,"files":[]}`: "1:22: want an object in { }",
		`{"version":1,"files":{"a.jpg":{"parent":"A"},"b.jpg":{"parnet":"B"}}}`:             `1:55: unknown key "parnet" (parent?)`,
		`{"version":1,"files":{"a.jpg":{"parent":"A"},"a.jpg":{"parent":"B"}}}`:             `1:46: the key "a.jpg" stands here twice`,
		`{"version":1,"files":{"../a.jpg":{"parent":"A"}}}`:                                 `1:23: "../a.jpg" is no name of a file in this directory`,
		`{"version":1,"files":{"..":{"parent":"A"}}}`:                                       `1:23: ".." is no name of a file in this directory`,
		`{"version":1,"files":{"a.jpg":{"version":1,"parent":"A"}}}`:                        `1:32: unknown key "version" (known are parent, captured_at, role, of, priority, supersedes, description)`,
		`{"version":1,"files":{"a.jpg":{}}}`:                                                `1:31: the key "parent" is missing (it names the record that the file belongs to)`,
		`{"version":1,"files":{"a.jpg":{"parent":"` + strings.Repeat(" ", MaxFile) + `"}}}`: "1:41: a record's ID has at most 1024 bytes, this one has 65536, and 1 more",
	} {
		files, err := ParseManifest([]byte(text))
		if err == nil || err.Error() != want || files != nil {
			t.Errorf("%.80s: %v, %v\nwant %s", text, files, err, want)
		}
	}
}

// What a problem quotes is one printable line, whatever stands in the document, and their number is bounded.
func TestProblemsArePrintable(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"version":1`)
	for i := range 100 {
		fmt.Fprintf(&text, ",\"\\u001b[2J\\u202e%d %s\":0", i, strings.Repeat("x", 500))
	}
	_, err := ParseFile([]byte(text.String() + "}"))
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Problems) != maxProblems {
		t.Fatalf("%v", err)
	}
	for _, p := range refused.Problems {
		if s := p.String(); len(s) > 400 || strings.ContainsAny(s, "\x1b\n\u202e") {
			t.Errorf("%q", s)
		}
	}
}

// Which names are sidecars, and of what.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"x.jpg.json": "x.jpg", "x.JPG.JSON": "x.JPG", "x.json": "x", "\xff.json": "\xff", "manifest.json.json": "manifest.json",
		"manifest.json": "", "MANIFEST.JSON": "", ".json": "", "x.jpg": "", "json": "", "": "", "x.json.part": "", "x.Json": "",
	} {
		got, ok := Target(name)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", name, got, ok)
		}
		if Is(name) != (ok || IsManifest(name)) {
			t.Errorf("%q: Is %v", name, Is(name))
		}
	}
	if !IsManifest("MANIFEST.JSON") || IsManifest("Manifest.json") || IsManifest("a-manifest.json") {
		t.Error("names of manifests")
	}
}

// sound is what must hold of facts that were taken.
func sound(t *testing.T, f Facts) {
	t.Helper()
	if f.Parent == "" || len(f.Parent) > maxParent || !utf8.ValidString(f.Parent) || strings.ContainsRune(f.Parent, 0) {
		t.Errorf("parent %q", f.Parent)
	}
	if f.Priority < 0 || f.Priority > attachment.MaxPriority || (f.Role == attachment.RolePreview) != (f.Of != "") ||
		attachment.Printable(strings.ReplaceAll(f.Description, `\`, "")) != strings.ReplaceAll(f.Description, `\`, "") {
		t.Errorf("%+v", f)
	}
	if _, err := json.Marshal(f.CapturedAt); err != nil {
		t.Error(err)
	}
}

func judged(t *testing.T, err error) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 || len(refused.Problems) > maxProblems {
		t.Fatalf("refused with %v", err)
	}
	for _, p := range refused.Problems {
		if p.Line < 1 || p.Column < 1 || p.Message == "" || strings.ContainsAny(p.String(), "\n\x1b") || !utf8.ValidString(p.String()) {
			t.Errorf("%+v", p)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"parent":"x","captured_at":"2026-03-04T05:06:07Z","role":"original","priority":3,"description":"d"}`,
		`{"version":1,"parnet":[{"a":null}]}`, `{`, "[", `{"version":1e0,"parent":"\ud800"}`, "\xff", `{"":{},"":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		facts, err := ParseFile(data)
		if err != nil {
			judged(t, err)
			return
		}
		sound(t, facts)
		if !json.Valid(data) {
			t.Error("not JSON, and taken")
		}
	})
}

func FuzzParseManifest(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"files":{"a.jpg":{"parent":"A"},"b.jpg":{"parent":"B","priority":2}}}`, `{"version":1,"files":{"a":1}}`,
		`{"version":1,"files":{"/":{},"":[]},"x":{"y":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := ParseManifest(data)
		if err != nil {
			judged(t, err)
			return
		}
		for name, e := range files {
			sound(t, e.Facts)
			if name == "" || strings.ContainsAny(name, "/\x00") || !json.Valid(e.Text) {
				t.Errorf("%q: %q", name, e.Text)
			}
		}
	})
}
