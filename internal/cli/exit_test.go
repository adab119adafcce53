package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/controltest"
)

// Every exit code that fieldgwctl has is reached by a command line, with an explanation in words and, with -o json, in
// JSON that carries the same code; standard output stays empty. 9 belongs to fieldgwd.
func TestExitCodes(t *testing.T) {
	g := newGateway(t)
	g.Add(waiting(file(1, "1.jpg", 1, attachment.Ready, time.Minute), attachment.HoldQueued))
	g.Add(delivered(file(2, "2.jpg", 1, attachment.Reconciled, time.Hour), time.Minute))
	gone := newGateway(t)
	gone.stop()
	broken := newGateway(t)
	broken.Fail(errors.New("disk on fire"))
	forbidden := newGateway(t)
	forbidden.Fail(control.Refuse(control.CodeNotPermitted, "ask an administrator"))
	full := newGateway(t)
	full.Fail(control.Refuse(control.CodeStorageFull, ""))
	stopping := newGateway(t)
	stopping.Fail(control.Refuse(control.CodeShuttingDown, ""))
	stuck := newGateway(t)
	stuck.Add(waiting(file(3, "3.jpg", 1, attachment.Attention, time.Hour), attachment.NeedsMediaType))
	photo := filepath.Join(t.TempDir(), "photo.jpg")
	loop := filepath.Join(filepath.Dir(photo), "loop")
	if err := errors.Join(os.WriteFile(photo, []byte("x"), 0o600), os.Symlink(loop, loop)); err != nil {
		t.Fatal(err)
	}
	notSocket, directory := *g, *g
	notSocket.socket, directory.socket = photo, filepath.Dir(photo)
	for _, c := range []struct {
		g    *gateway
		line string
		code int
		word control.Code
	}{
		{broken, "list", exitFailed, control.CodeInternal},
		{g, "submit --record R " + loop, exitFailed, codeFailed},
		{g, "submit --record R /no/such/file", exitUsage, codeUsage},
		{&notSocket, "status", exitUsage, codeUsage},
		{&directory, "status", exitUsage, codeUsage},
		{g, "completion tcsh", exitUsage, codeUsage},
		{g, "help frobnicate", exitUsage, codeUsage},
		{g, "help list now", exitUsage, codeUsage},
		{g, "frobnicate", exitUsage, codeUsage},
		{g, "list --frobnicate", exitUsage, codeUsage},
		{g, "list now", exitUsage, codeUsage},
		{g, "list --condition lost", exitUsage, codeUsage},
		{g, "list --older-than soon", exitUsage, codeUsage},
		{g, "list --not-taken --parent R", exitUsage, codeUsage},
		{g, "show", exitUsage, codeUsage},
		{g, "show 019", exitUsage, control.CodeInvalid},
		{g, "show 0197f3a2", exitUsage, control.CodeAmbiguous},
		{g, "retry", exitUsage, codeUsage},
		{g, "retry --all 0197", exitUsage, codeUsage},
		{g, "retry --all --record R", exitUsage, codeUsage},
		{g, "retry --all --reason " + strings.Repeat("x", control.MaxReason+1), exitUsage, control.CodeInvalid},
		{g, "submit /etc/hostname", exitUsage, codeUsage},
		{g, "submit --record R", exitUsage, codeUsage},
		{g, "submit --record R /", exitUsage, codeUsage},
		{g, "wait", exitUsage, codeUsage},
		{g, "wait --all 0197", exitUsage, codeUsage},
		{g, "wait --all --for happiness", exitUsage, codeUsage},
		{gone, "status", exitNotRunning, codeNotRunning},
		{gone, "wait --all", exitNotRunning, codeNotRunning},
		{stopping, "list", exitNotRunning, control.CodeShuttingDown},
		{forbidden, "pause", exitNotPermitted, control.CodeNotPermitted},
		{g, "show ffff0000", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "wait ffff0000", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "records INS-9", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "retry --record INS-9", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "pause --record INS-9", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "resume --record INS-9", exitNoSuchItem, control.CodeNoSuchItem},
		{g, "list --parent INS-9", exitNoSuchItem, control.CodeNoSuchItem},
		{full, "submit --record R " + photo, exitNotPossible, control.CodeStorageFull},
		{g, "wait --for paused " + short(2), exitNotPossible, control.CodeNotPossible},
		{g, "wait --timeout 50ms " + short(1), exitTimedOut, codeTimedOut},
		{g, "wait --timeout 50ms --all", exitTimedOut, codeTimedOut},
		{g, "wait --timeout 50ms --record INS-118", exitTimedOut, codeTimedOut},
		{stuck, "wait --all", exitAttention, codeAttention},
		{stuck, "wait " + short(3), exitAttention, codeAttention},
	} {
		r := c.g.run(t, strings.Fields(c.line)...)
		if r.code != c.code || r.out != "" || !strings.HasPrefix(r.err, "fieldgwctl: ") {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.line, r.code, c.code, r.out, r.err)
		}
		r = c.g.run(t, append([]string{"-o", "json"}, strings.Fields(c.line)...)...)
		var problem struct {
			control.Error
			ExitCode int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(r.err), &problem); err != nil {
			t.Errorf("%s: %v in %q", c.line, err, r.err)
		}
		if r.code != c.code || problem.ExitCode != c.code || problem.Code != c.word || problem.Schema != control.SchemaError || problem.Title == "" || strings.Contains(r.err, `"status": 0`) {
			t.Errorf("%s as JSON: exit %d, %+v, want %d %s", c.line, r.code, problem, c.code, c.word)
		}
	}
	if r := g.run(t, "-o", "xml", "status"); r.code != exitUsage {
		t.Errorf("unknown form: %+v", r)
	}
	if r := g.run(t, "status", "--quiet"); r.code != exitDone || r.err != "" {
		t.Errorf("done: %+v", r)
	}
	if r := stuck.run(t, "status", "--check"); r.code != exitAttention || r.err != "" {
		t.Errorf("attention: %+v", r)
	}
}

// A person who stops a command gets 130, whatever the command was waiting for.
func TestInterrupted(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, line := range []string{"status", "list", "wait --all"} {
		if r := g.runIn(t, ctx, strings.Fields(line)...); r.code != exitInterrupted {
			t.Errorf("%s: %+v", line, r)
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	before := g.Subscriptions()
	done := make(chan result, 1)
	go func() { done <- g.runIn(t, ctx, "wait", "--all") }()
	for g.Subscriptions() == before { // until the wait has begun
		runtime.Gosched()
	}
	cancel()
	if r := <-done; r.code != exitInterrupted || r.err != "fieldgwctl: Interrupted\n" {
		t.Errorf("%+v", r)
	}
}

// Another user who is not in the socket's group is told that it is a matter of permission, not that nothing runs. As root
// the test becomes nobody for this; as anybody else it takes the right from the socket.
func TestNotPermitted(t *testing.T) {
	g := newGateway(t)
	if err := os.Chmod(g.socket, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fieldgwctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "fieldgwctl")
	binary, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, binary, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "status", "--socket", filepath.Join(dir, "s"))
	cmd.Env = append(os.Environ(), childEnv+"=1")
	b := controltest.New(clock)
	controltest.Serve(t, filepath.Join(dir, "s"), b)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else if err := os.Chmod(filepath.Join(dir, "s"), 0); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err = cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != exitNotPermitted {
		t.Fatalf("%v, %s", err, stderr.String())
	}
	if text := stderr.String(); !strings.Contains(text, "Not permitted") || !strings.Contains(text, "adduser") || out.String() != "" {
		t.Errorf("%q, %q", text, out.String())
	}
}

// The help names every exit code, and every code that the daemon can answer with has one.
func TestExitTable(t *testing.T) {
	g := newGateway(t)
	help := g.run(t, "--help").out
	codes := map[int]bool{}
	for _, e := range exitTable {
		codes[e.code] = true
		if !strings.Contains(help, fmt.Sprintf("%3d  %s\n", e.code, e.meaning)) {
			t.Errorf("%d is not in the help", e.code)
		}
	}
	for code, exit := range exitOf {
		if !codes[exit] {
			t.Errorf("%s: exit code %d is not in the table", code, exit)
		}
	}
	for _, verb := range strings.Fields("status list show records submit wait retry pause resume version completion") {
		if !strings.Contains(help, "\n  "+verb+" ") {
			t.Errorf("%s is not in the help", verb)
		}
	}
	for _, e := range exitTable {
		text, err := os.ReadFile("../../docs/cli.md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), fmt.Sprintf("| %d |", e.code)) {
			t.Errorf("docs/cli.md does not name exit code %d", e.code)
		}
	}
}

// Without a daemon version still says what is installed.
func TestVersionWithoutDaemon(t *testing.T) {
	g := newGateway(t)
	g.stop()
	g.golden(t, "version", "version", "version -o json")
}
