package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/controltest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// childEnv makes the test binary be fieldgwctl: for tests that need another user.
const childEnv = "FIELDGW_TEST_FIELDGWCTL"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(Run(context.Background(), os.Args[1:], Env{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now, Local: time.Local,
		}))
	}
	buildinfo.Version = "0.4.0"
	goleak.VerifyTestMain(m)
}

// clock is the time of every golden text: 30 November 2025, 11:17 in a zone one hour east.
func clock() time.Time { return time.Date(2025, 11, 30, 10, 17, 0, 0, time.UTC) }

var east = time.FixedZone("east", 3600)

// ago is a time before the clock's.
func ago(d time.Duration) time.Time { return clock().Add(-d) }

// result is what one command printed.
type result struct {
	out, err string
	code     int
}

// gateway is a fake daemon at a real socket and the world of a command.
type gateway struct {
	*controltest.Backend
	socket string
	env    map[string]string
	stdin  string
	tty    bool
	grace  time.Duration
	watch  chan string // takes what commands write to standard output, when it is there
	stop   func()
}

func newGateway(t testing.TB) *gateway {
	t.Helper()
	g := &gateway{Backend: controltest.New(clock), socket: controltest.Socket(t), env: map[string]string{}, grace: time.Millisecond}
	g.stop = controltest.Serve(t, g.socket, g.Backend)
	return g
}

func (g *gateway) run(t testing.TB, args ...string) result {
	t.Helper()
	return g.runIn(t, t.Context(), args...)
}

func (g *gateway) runIn(t testing.TB, ctx context.Context, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	var stdout io.Writer = &out
	if g.watch != nil {
		stdout = io.MultiWriter(&out, chanWriter(g.watch))
	}
	code := Run(ctx, args, Env{
		Stdin: strings.NewReader(g.stdin), Stdout: stdout, Stderr: &err, Now: clock, Local: east, Terminal: g.tty, grace: g.grace,
		Getenv: func(name string) string {
			if name == "FIELDGW_SOCKET" {
				return g.socket
			}
			return g.env[name]
		},
	})
	return result{out.String(), err.String(), code}
}

type chanWriter chan string

func (w chanWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// golden runs commands and compares everything they print with a file.
func (g *gateway) golden(t *testing.T, name string, commands ...string) {
	t.Helper()
	var b strings.Builder
	for _, command := range commands {
		r := g.run(t, strings.Fields(command)...)
		fmt.Fprintf(&b, "$ fieldgwctl %s\n%s", command, r.out)
		if r.err != "" {
			fmt.Fprintf(&b, "[stderr]\n%s", r.err)
		}
		fmt.Fprintf(&b, "[exit %d]\n\n", r.code)
	}
	compare(t, name, strings.ReplaceAll(b.String(), g.socket, "SOCKET"))
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s:\n%s", file, got)
	}
}

// fixedID makes IDs that are the same in every run; n tells them apart at their end.
func fixedID(n int) attachment.ID {
	return attachment.ID(fmt.Sprintf("0197f3a2-4c1d-7abc-8def-01%010x", n*0x1234567))
}

// file makes an attachment of record INS-117, taken so long ago.
func file(n int, name string, length int64, state attachment.State, taken time.Duration) controltest.Entry {
	return controltest.Entry{
		Copy: control.CopySpool, Path: "/var/lib/fieldgw/accounts/acme/spool/payload/" + fixedID(n).Shard() + "/" + string(fixedID(n)),
		Manifest: attachment.Manifest{
			ID: fixedID(n), State: state, Filename: attachment.NameOf(name), Length: length, MediaType: "image/jpeg",
			SHA256: attachment.Digest{byte(n), 0xab}, Parent: attachment.Parent{LocalID: attachment.NameOf("INS-117")},
			CapturedAt: ago(taken + time.Minute), CapturedAtSource: "mtime", AdoptedAt: ago(taken), Prepared: true,
			Role: attachment.RoleOriginal, Structure: attachment.StructureUnchecked, Custody: attachment.CustodyMove,
			Source: attachment.Source{
				Watch: "camera", Path: attachment.NameOf("/var/lib/fieldgw/capture/INS-117/" + name), Evidence: attachment.EvidenceLease,
			},
		},
		Journal: []control.JournalRow{{Seq: uint64(n), At: ago(taken), Event: attachment.EventAdopted, To: attachment.Captured}},
	}
}

// waiting makes an attachment wait for a reason since it was taken.
func waiting(e controltest.Entry, code attachment.Code) controltest.Entry {
	e.Waiting = control.Why(code, e.Manifest.ID, e.Manifest.AdoptedAt)
	return e
}

func delivered(e controltest.Entry, since time.Duration) controltest.Entry {
	e.Manifest.State, e.Copy = attachment.Reconciled, control.CopyDelivered
	e.Manifest.Delivery.Grade, e.Manifest.Delivery.RegisteredAt = "registered-durable", ago(since)
	e.Manifest.Delivery.Attempts, e.Manifest.Delivery.Verified = 1, true
	length := e.Manifest.Length
	e.Confirmed = &length
	return e
}

func ptr[T any](v T) *T { return &v }
