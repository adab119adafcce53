// Command summary runs go test and says what came of it.
//
//	go run ./test/summary [-not-run reason]... -- [go test arguments]
//
// While tests run it prints a line for each package that has finished and the whole output of each test that failed. At
// the end it counts packages and tests and lists what was not run and why: the messages of skipped tests, every logged
// line that begins with "NOT RUN: ", and the -not-run reasons that its caller knows. The last line always reads
// "N passed, N failed, N skipped". A test that has subtests is not counted, its subtests are. It exits 0 only if go test
// did and at least one test ran. Start reading at report.go.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	r := newReport(stdout)
	flags := flag.NewFlagSet("summary", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("not-run", "a `reason` why something is not tested; may be repeated", func(reason string) error {
		r.note("", "", reason)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2
	}
	// The terminal sends an interrupt to go test as well: it ends, and the summary of what ran is still printed.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)

	failed := test(flags.Args(), r, stderr)
	if _, exited := errors.AsType[*exec.ExitError](failed); failed != nil && !exited {
		fmt.Fprintln(stderr, "go test:", failed)
	}
	if !r.finish() || failed != nil {
		return 1
	}
	return 0
}

// test runs go test and feeds its events to r.
func test(args []string, r *report, stderr io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(feed(out, r), cmd.Wait())
}

// feed reads events, one a line, up to the end of in. A line that is none is passed on as it is.
func feed(in io.Reader, r *report) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.add(e)
		} else if len(line) > 0 {
			fmt.Fprintf(r.out, "%s", line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
