package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; `go doc test2json` describes it. Build events carry ImportPath instead of Package.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64 // seconds
}

// report collects events, prints progress to out as they come, and the summary in finish.
type report struct {
	out      io.Writer
	started  time.Time
	running  map[string]*pkg
	builds   map[string]string // output of builds, by what was built
	packages struct{ passed, failed, untested int }
	tests    struct{ passed, failed, skipped int }
	failures []string
	notes    []note
}

// pkg is a package whose tests run.
type pkg struct {
	output string // what belongs to no test
	tests  map[string]*running
	ran    int
	failed int
}

// running is a test that has not ended; its output is forgotten when it passes.
type running struct {
	output      strings.Builder
	parent      bool
	childFailed bool
}

// note says that tests were not run, and why. Notes of one package with one reason are shown as one.
type note struct {
	pkg, reason string
	tests       []string
}

const module = "github.com/fieldgw/fieldgw/"

var (
	notRun = regexp.MustCompile(`(?:^|: )NOT RUN: (.+)`)
	logged = regexp.MustCompile(`^ *\S+\.go:\d+: (.*)`)
)

func newReport(out io.Writer) *report {
	return &report{out: out, started: time.Now(), running: map[string]*pkg{}, builds: map[string]string{}}
}

func (r *report) add(e event) {
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] += e.Output
		return
	case "build-fail":
		fmt.Fprint(r.out, r.builds[e.ImportPath])
		return
	}
	p := r.running[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*running{}}
		r.running[e.Package] = p
	}
	switch e.Action {
	case "run":
		p.tests[e.Test] = &running{}
		if parent := p.parent(e.Test); parent != nil {
			parent.parent = true
		}
	case "output":
		r.output(e, p)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e, p)
			delete(r.running, e.Package)
		} else {
			r.endTest(e, p)
		}
	}
}

func (r *report) output(e event, p *pkg) {
	if m := notRun.FindStringSubmatch(e.Output); m != nil {
		r.note(e.Package, e.Test, m[1])
	}
	if t := p.tests[e.Test]; t != nil {
		t.output.WriteString(e.Output)
	} else {
		p.output += e.Output
	}
}

// parent is the test that started name as a subtest, whose own name may have slashes; nil for a test at the top.
func (p *pkg) parent(name string) *running {
	for i := strings.LastIndex(name, "/"); i > 0; i = strings.LastIndex(name[:i], "/") {
		if t := p.tests[name[:i]]; t != nil {
			return t
		}
	}
	return nil
}

func (r *report) endTest(e event, p *pkg) {
	t := p.tests[e.Test]
	if t == nil {
		t = &running{}
	}
	delete(p.tests, e.Test)
	switch e.Action {
	case "pass":
		if !t.parent {
			r.tests.passed++
			p.ran++
		}
	case "skip":
		r.tests.skipped++
		r.note(e.Package, e.Test, skipReason(t.output.String()))
	case "fail":
		fmt.Fprintf(r.out, "=== FAILED: %s %s\n%s", short(e.Package), e.Test, t.output.String())
		if parent := p.parent(e.Test); parent != nil {
			parent.childFailed = true
		}
		if !t.childFailed {
			r.tests.failed++
			p.ran++
			r.failures = append(r.failures, short(e.Package)+" "+e.Test)
		}
		p.failed++
	}
}

// endPackage counts a package. Tests that it left without an end, because the process died, have failed; a package that
// failed outside of its tests counts as one failed test.
func (r *report) endPackage(e event, p *pkg) {
	if e.Action == "skip" {
		r.packages.untested++
		return
	}
	for len(p.tests) > 0 {
		// A subtest sorts behind its parent, and ends first.
		names := slices.Sorted(maps.Keys(p.tests))
		r.endTest(event{Action: "fail", Package: e.Package, Test: names[len(names)-1]}, p)
	}
	word := "ok  "
	if e.Action == "pass" {
		r.packages.passed++
	} else {
		word = "FAIL"
		r.packages.failed++
		fmt.Fprint(r.out, p.output)
		if p.failed == 0 {
			r.tests.failed++
			r.failures = append(r.failures, short(e.Package))
		}
	}
	took := fmt.Sprintf("%.1f s", e.Elapsed)
	if strings.Contains(p.output, "\t(cached)") {
		took = "cached"
	}
	fmt.Fprintf(r.out, "%s  %-32s %4d tests  %s\n", word, short(e.Package), p.ran, took)
}

// skipReason finds the message of a skip in the output of its test: what is marked as one, else what was logged last.
func skipReason(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		m := logged.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		marked, ok := strings.CutPrefix(m[1], "not run: ")
		if ok {
			return marked
		}
		reason = m[1]
	}
	return cmp.Or(reason, "no reason given")
}

func (r *report) note(pkg, test, reason string) {
	i := slices.IndexFunc(r.notes, func(n note) bool { return n.pkg == pkg && n.reason == reason })
	if i < 0 {
		i = len(r.notes)
		r.notes = append(r.notes, note{pkg: pkg, reason: reason})
	}
	if test != "" && !slices.Contains(r.notes[i].tests, test) {
		r.notes[i].tests = append(r.notes[i].tests, test)
	}
}

// finish prints the summary and reports whether every test passed and there was one.
func (r *report) finish() bool {
	p, t := r.packages, r.tests
	fmt.Fprintf(r.out, "\npackages: %d tested, %d passed, %d failed; %d without tests\n", p.passed+p.failed, p.passed, p.failed, p.untested)
	fmt.Fprintf(r.out, "tests:    %d run in %.0f s\n", t.passed+t.failed, time.Since(r.started).Seconds())
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "failed:   %s\n", f)
	}
	for _, n := range r.notes {
		what := strings.TrimSpace(short(n.pkg) + " " + strings.Join(n.tests, ", "))
		if what != "" {
			what += ": "
		}
		fmt.Fprintf(r.out, "not run:  %s%s\n", what, n.reason)
	}
	if t.passed+t.failed+t.skipped == 0 {
		fmt.Fprintln(r.out, "no test was found")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && p.failed == 0 && t.passed > 0
}

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }
