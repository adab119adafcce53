package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

// The exit codes of fieldgwctl and fieldgwd. exitTable describes them.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotRunning   = 3
	exitNotPermitted = 4
	exitNoSuchItem   = 5
	exitNotPossible  = 6
	exitTimedOut     = 7
	exitAttention    = 8
	exitConfig       = 9
	exitInterrupted  = 130
)

var exitTable = []struct {
	code    int
	meaning string
}{
	{exitDone, "done"},
	{exitFailed, "failed"},
	{exitUsage, "the command line is wrong, or an ID fits several files"},
	{exitNotRunning, "fieldgwd is not running"},
	{exitNotPermitted, "not permitted"},
	{exitNoSuchItem, "no such file or record"},
	{exitNotPossible, "not possible in this state"},
	{exitTimedOut, "timed out (wait)"},
	{exitAttention, "a person is needed (status --check, wait)"},
	{exitConfig, "the configuration is invalid (fieldgwd run, fieldgwd check-config)"},
	{exitInterrupted, "interrupted"},
}

// exitHelp is the table as help text.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitTable {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// exitOf gives the daemon's problem codes their exit code; those that are missing are exitFailed.
var exitOf = map[control.Code]int{
	control.CodeInvalid:          exitUsage,
	control.CodeAmbiguous:        exitUsage,
	control.CodeShuttingDown:     exitNotRunning,
	control.CodeNotPermitted:     exitNotPermitted,
	control.CodeNoSuchItem:       exitNoSuchItem,
	control.CodeNotPossible:      exitNotPossible,
	control.CodeSubmissionReused: exitNotPossible,
	control.CodeQueueUnavailable: exitNotPossible,
	control.CodeStorageFull:      exitNotPossible,
	control.CodeQueueFull:        exitNotPossible,
	codeUsage:                    exitUsage,
	codeNotRunning:               exitNotRunning,
	codeTimedOut:                 exitTimedOut,
	codeAttention:                exitAttention,
	codeInterrupted:              exitInterrupted,
}

// The problem codes that only the command itself uses.
const (
	codeUsage       control.Code = "usage"
	codeNotRunning  control.Code = "not_running"
	codeTimedOut    control.Code = "timed_out"
	codeAttention   control.Code = "needs_attention"
	codeInterrupted control.Code = "interrupted_by_user"
	codeFailed      control.Code = "failed"
)

// errInterrupted is returned when the person stopped the command.
var errInterrupted = errors.New("interrupted")

// usageError is a command line that cannot be meant.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e *usageError) Unwrap() error { return e.error }

// reported is a failure that the answer already shows: it sets the exit code and prints nothing.
type reported struct{ code int }

// Error implements error.
func (e *reported) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// fail prints an error and returns its exit code.
func (a *app) fail(err error) int {
	if r, ok := errors.AsType[*reported](err); ok {
		return r.code
	}
	problem := a.explain(err)
	code, known := exitOf[problem.Code]
	if !known {
		code = exitFailed
	}
	if a.output == formatJSON {
		document := struct {
			control.Error
			ExitCode int `json:"exit_code"`
		}{problem, code}
		if data, err := json.MarshalIndent(document, "", "  "); err == nil {
			_, _ = fmt.Fprintf(a.env.Stderr, "%s\n", asciiJSON(data)) // nowhere left to complain
		}
		return code
	}
	_, _ = fmt.Fprint(a.env.Stderr, problemText(problem)) // nowhere left to complain
	return code
}

// explain makes a problem of any error.
func (a *app) explain(err error) control.Error {
	if problem, ok := errors.AsType[*control.Error](err); ok {
		return *problem
	}
	p := control.Error{Schema: control.SchemaError, Code: codeFailed, Title: "Failed"}
	p.Detail = strings.ReplaceAll(err.Error(), "\n", "; ") // several errors are joined by line breaks
	usage, isUsage := errors.AsType[*usageError](err)
	switch {
	case isUsage:
		p.Code, p.Title, p.Detail, p.Hint = codeUsage, "Usage", usage.Unwrap().Error(), see(a.command)
	case errors.Is(err, errInterrupted):
		p.Code, p.Title, p.Detail = codeInterrupted, "Interrupted", ""
	case errors.Is(err, client.ErrNotPermitted):
		p.Code, p.Title, p.Detail = control.CodeNotPermitted, "Not permitted", "this user may not use "+a.socket
		p.Hint = "The socket's group may: sudo adduser USER fieldgw, then log in again."
	case errors.Is(err, client.ErrNotSocket):
		p.Code, p.Title = codeUsage, "Usage"
		p.Hint = "--socket and $FIELDGW_SOCKET name the daemon's socket, which is " + client.DefaultSocket + " unless the configuration says otherwise."
	case errors.Is(err, client.ErrNotRunning):
		p.Code, p.Title, p.Detail = codeNotRunning, "fieldgwd is not running", "nobody answers at "+a.socket
		p.Hint = "Start it: sudo systemctl start fieldgwd"
	}
	return p
}

// problemText is a problem for people: one line, then what to do. Names from outside cannot make another line.
func problemText(p control.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "fieldgwctl: %s\n", attachment.Printable(p.Error()))
	for _, id := range p.Candidates {
		fmt.Fprintf(&b, "  %s\n", attachment.Printable(string(id)))
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, "  %s\n", attachment.Printable(p.Hint))
	}
	return b.String()
}
