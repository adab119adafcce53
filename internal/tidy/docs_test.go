package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// names is what a document may refer to.
type names struct {
	exists  func(path string) bool // from the root; a pattern of path.Match counts when something matches
	tests   map[string]bool
	targets map[string]bool
	heads   func(path string) map[string]bool // anchors of a document's headings
}

var (
	treePath  = regexp.MustCompile(`(?:^|[^\w./-])((?:` + module + `/|\./)?(?:internal|cmd|test|packaging)/[\w./{},*-]+)`)
	member    = regexp.MustCompile(`(\.[A-Z]\w*)+$`)
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	goLine    = regexp.MustCompile(`\b\w+\.go:\d+`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	makeCall  = regexp.MustCompile(`(?:^|[;&|(]|\$|\bsudo) *make((?: +[\w.=/-]+)+)`)
	inlineRef = regexp.MustCompile(`\]\(<?([^)>\s]+)`)
	ref       = regexp.MustCompile(`^\[[^\]]+\]:\s*<?([^>\s]+)`)
	scheme    = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	target    = regexp.MustCompile(`(?m)^([A-Za-z][\w-]*):([^=]|$)`)
)

// checkDoc returns what the Markdown document at name, a path from the root, names and the module has not.
func checkDoc(name, text string, known names) []finding {
	var found []finding
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		report := func(rule, format string, args ...any) {
			found = append(found, finding{name, i + 1, rule, fmt.Sprintf(format, args...)})
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if at := goLine.FindString(line); at != "" {
			report("docline", "%s: name the function, line numbers go stale", at)
		}
		for _, m := range treePath.FindAllStringSubmatch(line, -1) {
			for _, p := range expand(m[1]) {
				if !known.exists(p) {
					report("docpath", "%s does not exist", p)
				}
			}
		}
		for _, test := range testName.FindAllString(line, -1) {
			if !known.tests[test] {
				report("doctest", "no test is named %s", test)
			}
		}
		code := []string{line}
		if !fenced {
			code = nil
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				code = append(code, m[1])
			}
			for _, to := range links(line) {
				checkLink(name, to, known, report)
			}
		}
		for _, word := range makeWords(code) {
			if !known.targets[word] {
				report("doctarget", "the Makefile has no target %s", word)
			}
		}
	}
	return found
}

// expand turns a path as documents write it into paths to look for: a/{b,c} is two, a/... and a.Name are a.
func expand(p string) []string {
	p = strings.TrimPrefix(strings.TrimPrefix(p, module+"/"), "./")
	if head, rest, ok := strings.Cut(p, "{"); ok {
		inner, tail, _ := strings.Cut(rest, "}")
		var all []string
		for _, part := range strings.Split(inner, ",") {
			all = append(all, expand(head+part+tail)...)
		}
		return all
	}
	return []string{member.ReplaceAllString(strings.TrimRight(p, "./,-"), "")}
}

// makeWords lists the targets of the make commands in code.
func makeWords(code []string) []string {
	var words []string
	for _, c := range code {
		for _, m := range makeCall.FindAllStringSubmatch(strings.TrimSpace(c), -1) {
			for _, word := range strings.Fields(m[1]) {
				if !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
					words = append(words, word)
				}
			}
		}
	}
	return words
}

func links(line string) []string {
	var all []string
	for _, m := range slices.Concat(inlineRef.FindAllStringSubmatch(line, -1), ref.FindAllStringSubmatch(line, -1)) {
		if !scheme.MatchString(m[1]) {
			all = append(all, m[1])
		}
	}
	return all
}

func checkLink(from, to string, known names, report func(rule, format string, args ...any)) {
	file, anchor, _ := strings.Cut(to, "#")
	at := from
	if file != "" {
		at = path.Join(path.Dir(from), file)
	}
	if !known.exists(at) {
		report("doclink", "link to %s: no such file", to)
	} else if anchor != "" && strings.HasSuffix(at, ".md") && !known.heads(at)[anchor] {
		report("doclink", "link to %s: no such heading", to)
	}
}

// headings returns the anchors that a forge gives to the headings of a Markdown document.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		anchors[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))] = true
	}
	return anchors
}

// targets lists the targets that a Makefile defines.
func targets(makefile string) map[string]bool {
	all := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(makefile, -1) {
		all[m[1]] = true
	}
	return all
}

// README.md, ARCHITECTURE.md and docs name only paths, tests, make targets and links that exist.
func TestDocs(t *testing.T) {
	all, err := tree()
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	known := names{tests: map[string]bool{}, targets: targets(string(makefile))}
	known.exists = func(p string) bool {
		found, err := filepath.Glob(filepath.Join(root, p))
		return err == nil && len(found) > 0
	}
	known.heads = func(p string) map[string]bool {
		text, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Error(err)
		}
		return headings(string(text))
	}
	for _, s := range all {
		for _, decl := range s.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && s.test() && fn.Recv == nil {
				known.tests[fn.Name.Name] = true
			}
		}
	}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) == 0 {
		t.Error("docs holds no document")
	}
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Error(err)
			continue
		}
		name, err := filepath.Rel(root, doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range checkDoc(filepath.ToSlash(name), string(text), known) {
			t.Error(f)
		}
	}
}

// Each kind of stale name is found on its line, and what exists is left alone.
func TestDocRules(t *testing.T) {
	present := []string{"README.md", "docs/a.md", "docs/b.md", "internal/queue", "internal/control/client", "internal/queue/apply.go", "cmd/fieldgwd"}
	known := names{
		exists: func(p string) bool {
			return slices.ContainsFunc(present, func(have string) bool {
				ok, err := path.Match(p, have)
				return err == nil && ok
			})
		},
		tests:   map[string]bool{"TestQueue": true, "FuzzWire": true},
		targets: targets("build: needs ## help\nX := y\ntest:\n"),
		heads:   func(string) map[string]bool { return headings("# A title: `x` & more\ntext\n## Two_words here\n") },
	}
	tests := []struct {
		text string
		want string
	}{
		{"See internal/queue, `internal/queue/...` and `./cmd/fieldgwd`.", ""},
		{"See internal/queue.Apply and internal/queue.Queue.Apply.", ""},
		{"See internal/queues.", "docpath"},
		{"See `" + module + "/internal/gone`.", "docpath"},
		{"In internal/control/{client,server}.", "docpath"},
		{"In internal/queue/*.go and /usr/lib/internal/x and https://x.example/internal/y", ""},
		{"In internal/queue/*.txt", "docpath"},
		{"Shown by TestQueue, TestQueue/full and FuzzWire.", ""},
		{"Shown by TestGone.", "doctest"},
		{"Look at apply.go:12", "docline"},
		{"Type `make build test FUZZTIME=3s` and make sure; `make -n test`.", ""},
		{"Type `make gone`.", "doctarget"},
		{"Type `cd x && make gone`.", "doctarget"},
		{"```\n$ make gone   # all\n```", "doctarget"},
		{"```\nmake test   # gone\n[x](gone.md)\n```", ""},
		{"[b](b.md) [up](../README.md) [web](https://example.org/x) [here](#two_words-here) [t](b.md#a-title-x--more)", ""},
		{"[b](c.md)", "doclink"},
		{"[b]: c.md", "doclink"},
		{"[b](b.md#gone)", "doclink"},
	}
	for _, tt := range tests {
		var got []string
		for _, f := range checkDoc("docs/a.md", tt.text, known) {
			got = append(got, f.rule)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: found %q, want %q", tt.text, got, tt.want)
		}
	}
}
