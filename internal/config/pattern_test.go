package config

import "testing"

// A pattern finds the record in the bytes of the whole path, whatever they are.
func TestParentIn(t *testing.T) {
	for _, c := range []struct{ pattern, path, want string }{
		{`(?P<parent>[^/]+)/.*`, "INS-7/cam/a.jpg", "INS-7"},
		{`(?P<parent>[^/]+)/.*`, "a.jpg", ""},
		{`(?P<parent>\w+)_\d+\.jpg`, "INS_0001.jpg", "INS"},
		{`(?P<parent>\w+)_\d+\.jpg`, "INS_0001.jpg.part", ""}, // the whole path
		{`(?P<parent>\w+)_\d+\.jpg`, "tour/INS_0001.jpg", ""},
		{`a|(?P<parent>b)`, "b", "b"},
		{`a|(?P<parent>b)`, "ab", ""}, // an alternative is whole, too
		{`a|(?P<parent>b)`, "a", ""},  // and finds nothing here
		{`(?P<parent>.*)`, "\xff\n\xfe", "\xff\n\xfe"},
		{`(?P<parent>.{1,3}).*`, "\xc3\xa9\xff\xffx", "\xc3\xa9\xff\xff"},
		{`(?i)ins-(?P<parent>[0-9]+)-.*`, "INS-12-x", "12"},
	} {
		re, refused := compilePattern(c.pattern)
		if refused != nil {
			t.Errorf("%s: %v", c.pattern, refused)
			continue
		}
		got, ok := (&Watch{pattern: re}).ParentIn(c.path)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s in %q: %q, %v; want %q", c.pattern, c.path, got, ok, c.want)
		}
	}
	if parent, ok := (&Watch{}).ParentIn("a/b"); ok {
		t.Errorf("without a pattern: %q", parent)
	}
}

// What is wrong with a pattern is said with its place, and with the keys that belong together.
func TestPatternProblems(t *testing.T) {
	got := problemsOf(t, `[watch.a]
path = "/a"
parent = "pattern"
[watch.b]
path = "/b"
pattern = '(?P<parent>x)'
[watch.c]
path = "/c"
parent = "pattern"
pattern = 'ü(?P<parent>[^/]+'
[watch.d]
path = "/d"
parent = "pattern"
pattern = '(?P<parnet>.*)'
[watch.e]
path = "/e"
parent = "pattern"
pattern = '(.*)/.*'
sidecar_wait = "999ms"
[watch.f]
path = "/f"
parent = "pattern"
pattern = 'a)(?P<parent>b'
sidecar_wait = "25h"
[watch.g]
path = "/g"
parent = "pattern"
pattern = '(?P<parent>ä)/[z-a]'
`)
	want := `f.toml:3: watch.a.parent: parent = "pattern" needs the key pattern (pattern = "(?P<parent>[^/]+)/.*")
f.toml:6: watch.b.pattern: the pattern is not used (set parent = "pattern", or drop this key)
f.toml:10: watch.c.pattern: malformed pattern: missing closing ): "ü(?P<parent>[^/]+" (in a string in single quotes a backslash stands for itself)
f.toml:14: watch.d.pattern: the pattern has a group named "parnet", which means nothing (did you mean "parent"?)
f.toml:18: watch.e.pattern: the pattern has no group named parent ((?P<parent>[^/]+) takes one directory or name)
f.toml:19: watch.e.sidecar_wait: 999ms is outside 1s to 24h
f.toml:23: watch.f.pattern: malformed pattern: unexpected ): "a)(?P<parent>b" (in a string in single quotes a backslash stands for itself)
f.toml:24: watch.f.sidecar_wait: 25h is outside 1s to 24h
f.toml:28: watch.g.pattern: malformed pattern: invalid character class range at character 16: "z-a" (in a string in single quotes a backslash stands for itself)`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{{`(?P<parent>[^/]+)/.*`, "INS-7/a.jpg"}, {`(?P<parent>.*)`, "\xff\n"}, {`a)(?P<parent>b`, "a"}, {`(?P<parent>a*)*`, "aaa"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		re, refused := compilePattern(pattern)
		if refused != nil {
			return
		}
		parent, ok := (&Watch{pattern: re}).ParentIn(path)
		if ok && (parent == "" || len(parent) > maxParentID || len(parent) > len(path)) {
			t.Errorf("%q in %q finds %q", pattern, path, parent)
		}
		if whole := re.FindStringIndex(path); whole != nil && (whole[0] != 0 || whole[1] != len(path)) {
			t.Errorf("%q matches a part of %q", pattern, path)
		}
	})
}
