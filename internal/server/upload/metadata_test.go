package upload

import (
	"encoding/base64"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

func TestParseMetadata(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                              {},
		"filename Ym9pbGVyLmpwZw==":     {"filename": "boiler.jpg"},
		"a YQ==,b Yg==":                 {"a": "a", "b": "b"},
		"a YQ== ,\tb Yg==":              {"a": "a", "b": "b"},
		"is_confidential,empty ":        {"is_confidential": "", "empty": ""},
		"parent " + b64("Prüfung\x00"):  {"parent": "Prüfung\x00"},
		"filename YQ==,x-my.key/2 /w==": {"filename": "a", "x-my.key/2": "\xff"},
	} {
		if got, err := ParseMetadata(text); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		",", "a YQ==,", "a YQ==,a Yg==", "a YQ", "a YR==", "a Y Q==", "a YQ=\n=", "a  YQ==", "ä YQ==", "a\x01 YQ==", "a !",
		"a " + strings.Repeat("YWFh", maxMetadata/4),
	} {
		if got, err := ParseMetadata(text); !errors.Is(err, wire.ErrInvalid) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// Whatever ParseMetadata takes, the values it gives say the same again; what it does not take is an invalid message.
func FuzzMetadata(f *testing.F) {
	f.Add("filename Ym9pbGVyLmpwZw==,filetype aW1hZ2UvanBlZw==")
	f.Add("sha256 " + b64(strings.Repeat("a", 64)) + ",attachment_id " + b64("0190d4c4-9b7a-7cc2-9a7b-6f1d2e3c4b5a"))
	f.Add("parent,a ,b /w==")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := ParseMetadata(text)
		if err != nil {
			if !errors.Is(err, wire.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		var again []string
		for key, value := range values {
			again = append(again, key+" "+b64(value))
		}
		if got, err := ParseMetadata(strings.Join(again, ",")); len(text) < maxMetadata/2 && (err != nil || !maps.Equal(got, values)) {
			t.Fatalf("%q became %q, %v", values, got, err)
		}
		c, err := described(text)
		if err != nil {
			return
		}
		if _, err := c.facts(wire.MaxLength); err != nil && !errors.Is(err, wire.ErrInvalid) {
			t.Fatal(err)
		}
	})
}

// A key stands for one attachment of its device; a UUID is the attachment itself.
func TestKeyedID(t *testing.T) {
	const id = "0190d4c4-9b7a-7cc2-9a7b-6f1d2e3c4b5a"
	one, other := store.Identity{Account: "acme", Device: "one"}, store.Identity{Account: "acme", Device: "other"}
	keyed := func(who store.Identity, header string) string {
		t.Helper()
		got, err := KeyedID(who, header)
		if err != nil || got != "" && !store.IsUUID(got) {
			t.Fatalf("%q: %q, %v", header, got, err)
		}
		return got
	}
	if keyed(one, "") != "" || keyed(one, `"`+id+`"`) != id || keyed(other, `"`+id+`"`) != id {
		t.Error("a UUID is not taken as it is")
	}
	seen := map[string]bool{}
	for _, got := range []string{keyed(one, `"a"`), keyed(other, `"a"`), keyed(one, `"b"`), keyed(one, `"a\""`), keyed(one, `"a\\"`)} {
		if seen[got] {
			t.Errorf("%s stands for two keys", got)
		}
		seen[got] = true
	}
	if !seen[keyed(one, `"a"`)] {
		t.Error("a key stands for two attachments")
	}
	for _, header := range []string{id, `""`, `"`, `"a`, `a"`, `"a\"`, `"a\b"`, `"a"b"`, `"ä"`, "\"a\n\"", `"` + strings.Repeat("a", maxKey) + `"`} {
		if got, err := KeyedID(one, header); !errors.Is(err, wire.ErrInvalid) {
			t.Errorf("%q: %q, %v", header, got, err)
		}
	}
}
