package tidy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each rule of checkFile finds what it is for, at its line, and leaves the permitted neighbour alone.
func TestStyleRules(t *testing.T) {
	lines := func(n int, line string) string { return strings.Repeat(line+"\n", n) }
	tests := []struct {
		name, path, body string
		want             []string // "rule line"
	}{
		{"clean", "internal/x/a.go", "// F does.\nfunc F() {}", nil},
		{"sleep in a test", "internal/x/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", []string{"time.Sleep 3"}},
		{"sleep in the product", "internal/x/a.go", "import \"time\"\nfunc f() { time.Sleep(1) }", nil},
		{"nosync in a literal", "internal/x/a_test.go", "var o = bolt.Options{NoSync: true}", []string{"nosync 2"}},
		{"nosync on a field", "internal/x/a.go", "func f() { db.NoFreelistSync = true }", []string{"nosync 2"}},
		{"file call", "internal/x/a.go", "import \"os\"\nvar f = os.Rename", []string{"os.Rename 3"}},
		{"file call under another name", "internal/x/a.go", "import o \"os\"\nvar f = o.RemoveAll", []string{"os.RemoveAll 3"}},
		{"file call in durable", "internal/durable/a.go", "import \"os\"\nvar f = os.Rename", nil},
		{"file call in a test", "internal/x/a_test.go", "import \"os\"\nvar f = os.Rename", nil},
		{"file call in the test tree", "test/x/a.go", "import \"os\"\nvar f = os.Rename", nil},
		{"open for writing", "internal/x/a.go", "import \"os\"\nvar f = os.OpenFile(p, os.O_RDONLY|os.O_CREATE, 0)", []string{"os.OpenFile 3"}},
		{"open with unknown flags", "internal/x/a.go", "import \"os\"\nvar f = os.OpenFile(p, flags, 0)", []string{"os.OpenFile 3"}},
		{"open for reading", "internal/x/a.go", "import \"os\"\nvar f = os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)", nil},
		{"reading a file", "internal/x/a.go", "import \"os\"\nvar f = os.Open", nil},
		{"method of that name", "internal/x/a.go", "var f = x.Rename", nil},
		{"print", "internal/cli/a.go", "import \"fmt\"\nfunc f() { fmt.Println(1) }", []string{"fmt.Println 3"}},
		{"built-in print", "cmd/x/a.go", "func f() { println(1) }", []string{"println 2"}},
		{"stdout", "internal/cli/a.go", "import (\n\"fmt\"\n\"os\"\n)\nfunc f() { fmt.Fprintln(os.Stdout, 1) }", []string{"os.Stdout 6"}},
		{"print to a writer", "internal/cli/a.go", "import \"fmt\"\nfunc f() { fmt.Fprintln(w, 1) }", nil},
		{"log", "internal/x/a.go", "import \"log\"\nfunc f() { log.Print(1) }", []string{"log.* 2"}},
		{"default logger", "internal/x/a.go", "import \"log/slog\"\nvar l = slog.Default()", []string{"log/slog.Default 3"}},
		{"injected logger", "internal/x/a.go", "import \"log/slog\"\nfunc f(log *slog.Logger) { log.Info(\"x\") }", nil},
		{"background", "internal/x/a.go", "import \"context\"\nvar c = context.Background()", []string{"context.Background 3"}},
		{"background in main", "cmd/x/a.go", "import \"context\"\nvar c = context.Background()", nil},
		{"error text contains", "internal/x/a.go", "import \"strings\"\nvar b = strings.Contains(err.Error(), \"x\")", []string{"errtext 3"}},
		{"error text equal", "internal/x/a.go", "var b = \"x\" == err.Error()", []string{"errtext 2"}},
		{"error text in a test of the text", "internal/x/a_test.go", "import \"strings\"\nvar b = strings.Contains(err.Error(), \"x\")", nil},
		{"error text shown", "internal/x/a.go", "import \"strings\"\nvar b = strings.TrimSpace(err.Error())", nil},
		{"panic", "internal/x/a.go", "func f() { panic(1) }", []string{"panic 2"}},
		{"panic in a test", "internal/x/a_test.go", "func f() { panic(1) }", nil},
		{"skip", "internal/x/a_test.go", "import \"testing\"\nfunc f(t *testing.T) { t.Skip(\"later\") }", []string{"skip 3"}},
		{"skip without words", "internal/x/a_test.go", "import \"testing\"\nfunc f(t *testing.T) { t.SkipNow() }", []string{"skip 3"}},
		{"skip with a reason", "internal/x/a_test.go", "import \"testing\"\nfunc f(t *testing.T) { t.Skip(\"not run: no \" + x) }", nil},
		{"short", "internal/x/a_test.go", "import \"testing\"\nvar s = testing.Short()", []string{"testing.Short 3"}},
		{"unfinished word", "internal/x/a.go", "// TO" + "DO later", []string{"unfinished 2"}},
		{"unfinished phrase", "internal/x/a_test.go", "var s = \"not" + " implemented\"", []string{"unfinished 2"}},
		{"longer word", "internal/x/a.go", "var s = \"XX" + "XXXX\"", nil},
		{"now in a pure package", "internal/wire/a.go", "import \"time\"\nvar t = time.Now()", []string{"time.Now 3"}},
		{"now elsewhere", "internal/x/a.go", "import \"time\"\nvar t = time.Now()", nil},
		{"child process", "internal/x/a.go", "import \"os/exec\"\nvar c = exec.Command(\"x\")", []string{"os/exec.* 2"}},
		{"long file", "internal/x/a.go", lines(maxFile, "// x"), []string{"size 1"}},
		{"long test file", "internal/x/a_test.go", lines(maxFile, "// x") + "\nvar a int", nil},
		{"long function", "internal/x/a.go", "func f() {\n" + lines(maxFunc-1, "f()") + "}", []string{"size 2"}},
		{"longest function", "internal/x/a.go", "func f() {\n" + lines(maxFunc-2, "f()") + "}", nil},
		{"table", "internal/x/a.go", "func f() []int {\nreturn []int{\n" + lines(maxFunc, "1,") + "}\n}", nil},
		{"code in a table", "internal/x/a.go", "func f() any {\nreturn []any{func() {\n" + lines(maxFunc, "f()") + "}}\n}",
			[]string{"size 2", "size 3"}},
		{"undocumented", "internal/x/a.go", "func F() {}\ntype T int\nfunc (t *T) M() {}\nvar V int\nfunc (u[K]) M() {}",
			[]string{"doc 2", "doc 3", "doc 4", "doc 5"}},
		{"documented group", "internal/x/a.go", "// All.\nconst (\nA = 1\nB = 2\n)\nvar (\nC = 1 // c\nD = 2\n)", []string{"doc 9"}},
		{"types in a documented group", "internal/x/a.go", "// All.\ntype (\nA int\n)", []string{"doc 4"}},
		{"undocumented in the test tree", "test/x/a.go", "func F() {}", nil},
	}
	for _, tt := range tests {
		s, err := parse(tt.path, []byte("package x\n"+tt.body+"\n"))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var got []string
		for _, f := range checkFile(s) {
			got = append(got, fmt.Sprint(f.rule, " ", f.line))
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A package has one doc comment: none, two, a licence and the wrong first words are each found.
func TestPackageDocRule(t *testing.T) {
	tests := []struct {
		name  string
		files []string // "path text"
		want  []string // paths
	}{
		{"one", []string{"a/a.go // Package a is.\npackage a", "a/b.go package a", "a/a_test.go // Promise.\npackage a"}, nil},
		{"none", []string{"a/a.go package a"}, []string{"a/a.go"}},
		{"apart", []string{"a/a.go // Package a is.\n\npackage a"}, []string{"a/a.go"}},
		{"licence", []string{"a/a.go // Copyright of all.\npackage a"}, []string{"a/a.go"}},
		{"licence and doc", []string{"a/a.go // Copyright of all.\n\n// Package a is.\npackage a"}, nil},
		{"two", []string{"a/a.go // Package a is.\npackage a", "a/b.go // Package a was.\npackage a"}, []string{"a/b.go"}},
		{"first words", []string{"a/a.go // This is a.\npackage a"}, []string{"a/a.go"}},
		{"main", []string{"a/a.go // Fieldgwd runs.\npackage main"}, nil},
		{"main without", []string{"a/a.go package main"}, []string{"a/a.go"}},
		{"tests only", []string{"a/a_test.go // Package a tests.\npackage a", "a/b_test.go package a"}, nil},
		{"tests only without", []string{"a/a_test.go package a"}, []string{"a/a_test.go"}},
	}
	for _, tt := range tests {
		var all []*source
		for _, f := range tt.files {
			name, text, _ := strings.Cut(f, " ")
			s, err := parse(name, []byte(text))
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			all = append(all, s)
		}
		var got []string
		for _, f := range checkPackages(all) {
			got = append(got, f.path)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %v, want %v", tt.name, got, tt.want)
		}
	}
}

// An exception lifts its own rule in its own place only, and one that lifts nothing is itself a finding.
func TestExceptions(t *testing.T) {
	found := []finding{{path: "a/a.go", rule: "files"}, {path: "a/a.go", rule: "panic"}, {path: "b/c/d.go", rule: "files"}, {path: "bb.go", rule: "files"}}
	rest := excuse(found, []exception{{"files", "a/a.go", "r"}, {"files", "b/", "r"}, {"print", "a/a.go", "r"}})
	var got []string
	for _, f := range rest {
		got = append(got, f.path+" "+f.rule)
	}
	if want := []string{"a/a.go panic", "bb.go files", "a/a.go print"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}
