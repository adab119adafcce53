package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runIn writes files into a module of their own and runs the program on it.
func runIn(t *testing.T, files map[string]string, args ...string) (code int, out string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var stdout, stderr bytes.Buffer
	code = run(append(args, "--", "./..."), &stdout, &stderr)
	if stderr.Len() > 0 {
		t.Logf("stderr: %s", stderr.String())
	}
	return code, stdout.String()
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	return lines[len(lines)-1]
}

// Against the real go test: failures of every kind are counted once and printed in full, skips keep their reason, and
// what passes stays quiet.
func TestSummaryOfFailures(t *testing.T) {
	code, out := runIn(t, map[string]string{
		"a/a_test.go": `package a
import "testing"
func TestPart(t *testing.T) { t.Log("quiet"); t.Log("NOT RUN: the second half: no loop device") }
func TestSub(t *testing.T) {
	t.Run("bad", func(t *testing.T) { t.Error("boom\nsecond line") })
	t.Run("good", func(t *testing.T) {})
}
func TestSkip(t *testing.T) { t.Log("looking"); t.Skip("not run: qpdf is not installed"); }
func TestSkipToo(t *testing.T) { t.Skip("not run: qpdf is not installed") }
func TestPanic(t *testing.T) { panic("ouch") }
`,
		"b/b.go":      "package b\nvar x = y\n",
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) {}\n",
		"c/c.go":      "package c\n",
		"d/d_test.go": `package d
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { m.Run(); fmt.Println("goroutine leak"); os.Exit(1) }
func TestD(t *testing.T) {}
`,
	}, "-not-run", "race detector: no C compiler")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	// Passed: TestPart, TestSub/good, TestD. Failed: TestSub/bad, TestPanic, package b, package d.
	if got, want := lastLine(out), "3 passed, 4 failed, 2 skipped"; got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	for _, want := range []string{
		"boom\n        second line\n", "panic: ouch", "goroutine leak", "undefined: y",
		"\npackages: 3 tested, 0 passed, 3 failed; 1 without tests\n",
		"\ntests:    7 run in ",
		"\nfailed:   m/a TestSub/bad\n", "\nfailed:   m/a TestPanic\n", "\nfailed:   m/b\n", "\nfailed:   m/d\n",
		"\nnot run:  race detector: no C compiler\n",
		"\nnot run:  m/a TestPart: the second half: no loop device\n",
		"\nnot run:  m/a TestSkip, TestSkipToo: qpdf is not installed\n",
	} {
		if strings.Count(out, want) != 1 {
			t.Errorf("output has %q %d times, want once", want, strings.Count(out, want))
		}
	}
	for _, not := range []string{"quiet", "failed:   m/a TestSub\n"} {
		if strings.Contains(out, not) {
			t.Errorf("output has %q", not)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// A run whose tests all pass exits 0, with one line for each package.
func TestSummaryOfSuccess(t *testing.T) {
	code, out := runIn(t, map[string]string{"a/a_test.go": "package a\nimport \"testing\"\nfunc TestA(t *testing.T) {}\n"})
	if code != 0 || lastLine(out) != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
	if !regexp.MustCompile(`(?m)^ok +m/a +1 tests `).MatchString(out) {
		t.Errorf("no line for package m/a:\n%s", out)
	}
}

// A run that tested nothing is no success.
func TestSummaryOfNothing(t *testing.T) {
	code, out := runIn(t, map[string]string{"a/a.go": "package a\n"})
	if code != 1 || !strings.Contains(out, "no test was found") {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
}

// Tests that a dying process left without an end have failed, each once and not their parents again.
func TestUnfinishedTests(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	events := `{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"run","Package":"m/a","Test":"TestA/b/c"}
{"Action":"output","Package":"m/a","Test":"TestA/b/c","Output":"SIGKILL\n"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t1.0s\n"}
no event
{"Action":"fail","Package":"m/a","Elapsed":1}`
	if err := feed(strings.NewReader(events), r); err != nil {
		t.Fatal(err)
	}
	if r.finish() {
		t.Error("reported as passed")
	}
	if got, want := lastLine(out.String()), "0 passed, 1 failed, 0 skipped"; got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	for _, want := range []string{"SIGKILL", "no event\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
