package objectkey

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var facts = Facts{
	ID: "0196f000-0000-7000-8000-000000000001", SHA256: strings.Repeat("ab", 32), Account: "plant-7", Device: "tablet 3",
	Parent: "inspection-7", Filename: "boiler room.jpg", Captured: time.Date(2026, 3, 1, 23, 30, 0, 0, time.FixedZone("", -3600)),
}

func TestKey(t *testing.T) {
	for template, want := range map[string]string{
		"{account}/{parent}/{date}/{id}-{filename}": "plant-7/inspection-7/2026-03-02/0196f000-0000-7000-8000-000000000001-boiler room.jpg",
		"{year}/{month}/{device}/{sha256}":          "2026/03/tablet 3/" + facts.SHA256,
		"sha256-{sha256}":                           "sha256-" + facts.SHA256,
	} {
		parsed, err := Parse(template)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		if got := parsed.Key(facts); got != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
}

// What comes from outside stays within its part of the key.
func TestNamesFromOutside(t *testing.T) {
	parsed, err := Parse("a/{parent}/{id}-{filename}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ parent, filename, want string }{
		{"", "", "a/_/ID-_"},
		{"..", ".", "a/__/ID-_"},
		{"../../etc", "/passwd", "a/.._.._etc/ID-_passwd"},
		{"x\x00y\nz", "b\\c\u202ed", "a/x_y_z/ID-b_c_d"},
		{"\xff\xfe", "größe.jpg", "a/__/ID-größe.jpg"},
		{"p", strings.Repeat("ä", 200) + ".jpg", "a/p/ID-" + strings.Repeat("ä", 78) + ".jpg"},
	} {
		if got := parsed.Key(Facts{ID: "ID", Parent: c.parent, Filename: c.filename}); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.parent, c.filename, got, c.want)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for _, template := range []string{
		"", "x", "{filename}", "{id", "id}", "{id}}", "{}{id}", "{ID}", "{id}{id}", "{uuid}-{id}", "/{id}", "{id}/", "a//{id}",
		"../{id}", "a/./{id}", "a/.../{id}", "a\\{id}", "a\n{id}", "a\xff{id}", strings.Repeat("x", MaxText+1) + "{id}",
	} {
		if _, err := Parse(template); !errors.Is(err, ErrTemplate) {
			t.Errorf("%q: %v", template, err)
		}
	}
	if n := Names(); !slices.Contains(n, "id") || !slices.IsSorted(n) {
		t.Errorf("placeholders: %v", n)
	}
}

// Whatever a template and the names are: what is taken gives keys that stores take and that stay in their parts.
func FuzzKey(f *testing.F) {
	f.Add("{account}/{parent}/{date}/{id}-{filename}", "plant", "..", "a/b")
	f.Add("{device}{year}{month}{sha256}", "\xff", "", "\u202e")
	f.Add("{id}-{filename}{parent}{account}{device}{sha256}{date}", strings.Repeat("ä", 300), strings.Repeat("x", 999), ".")
	f.Fuzz(func(t *testing.T, template, account, parent, filename string) {
		parsed, err := Parse(template)
		if err != nil {
			return
		}
		of := facts
		of.Account, of.Device, of.Parent, of.Filename = account, account, parent, filename
		key := parsed.Key(of)
		if len(key) > Max || !utf8.ValidString(key) || strings.ContainsFunc(key, unfit) ||
			!strings.Contains(key, of.ID) && !strings.Contains(key, of.SHA256) {
			t.Fatalf("key %q", key)
		}
		if strings.Count(key, "/") != strings.Count(template, "/") {
			t.Fatalf("key %q has other parts than %q", key, template)
		}
		for part := range strings.SplitSeq(key, "/") {
			if part == "" || part == "." || part == ".." {
				t.Fatalf("key %q", key)
			}
		}
	})
}
