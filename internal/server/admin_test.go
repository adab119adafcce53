package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
	istore "github.com/fieldgw/fieldgw/internal/store"
)

// operate runs one operator's session on a rig's directory.
func (r *rig) operate(do func(admin.Operator) error) error {
	return Operate(r.t.Context(), r.opts, "test", do)
}

// running serves the rig with Run until the test calls what is returned.
func (r *rig) running() (stop func()) {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(r.t, err)
	ready := make(chan struct{}, 2)
	r.server.opts.Notify = func(string) { ready <- struct{}{} }
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Run(ctx, ln) }()
	select {
	case <-ready:
	case err := <-ended:
		r.t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

// Operators get the same answers and the same errors from the running server, over its socket, and from the directory
// of one that is stopped.
func TestOperator(t *testing.T) {
	for _, mode := range []string{"running", "stopped"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t)
			f, half := newFile("0123456789"), newFile("incomplete")
			r.deliver(f)
			r.reserve(half)
			if mode == "running" {
				defer r.running()()
			} else {
				r.close()
			}
			check(t, r.operate(func(o admin.Operator) error {
				if _, ok := o.(*admin.Client); ok != (mode == "running") {
					t.Errorf("asked %T", o)
				}
				operatorTokens(t, o)
				operatorAttachments(t, o, f, half)
				return nil
			}))
			check(t, os.Remove(r.contentFile(f)))
			check(t, r.operate(func(o admin.Operator) error {
				found, err := o.VerifyAttachment(t.Context(), "acme", f.id)
				if err != nil || found.Sound || !found.Missing {
					t.Errorf("missing content: %+v, %v", found, err)
				}
				return nil
			}))
		})
	}
}

func operatorTokens(t *testing.T, o admin.Operator) {
	ctx := t.Context()
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	made, err := o.CreateToken(ctx, admin.TokenRequest{Account: "acme", Device: "new-one", ExpiresAt: &expires})
	if err != nil || !strings.HasPrefix(made.Text, "fgw1.acme.new-one.") || made.ExpiresAt == nil || !made.ExpiresAt.Equal(expires) {
		t.Errorf("created %+v, %v", made, err)
	}
	past := time.Unix(0, 0)
	for _, bad := range []admin.TokenRequest{
		{}, {Account: "acme"}, {Account: "Acme", Device: "d"}, {Account: "a/b", Device: "d"}, {Account: "acme", Device: strings.Repeat("d", 64)},
		{Account: "acme", Device: "d", ExpiresAt: &past},
	} {
		if _, err := o.CreateToken(ctx, bad); !errors.Is(err, admin.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if revoked, err := o.RevokeToken(ctx, made.ID); err != nil || revoked.RevokedAt == nil || revoked.ID != made.ID {
		t.Errorf("revoked %+v, %v", revoked, err)
	}
	if _, err := o.RevokeToken(ctx, "no/such one"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoke of an unknown one: %v", err)
	}
	all, err := o.Tokens(ctx)
	if err != nil || len(all) != 4 {
		t.Errorf("tokens %+v, %v", all, err)
	}
}

func operatorAttachments(t *testing.T, o admin.Operator, f, half file) {
	ctx := t.Context()
	for account, want := range map[string]int{"": 2, "acme": 2, "zeta": 0} {
		page, err := o.Attachments(ctx, admin.Query{Account: account})
		if err != nil || len(page) != want {
			t.Errorf("account %q: %d attachments, %v", account, len(page), err)
		}
		if want == 0 {
			continue
		}
		rest, err := o.Attachments(ctx, admin.Query{Account: account, After: page[0].Account, AfterID: page[0].ID})
		if err != nil || len(rest) != 1 || rest[0].ID != page[1].ID {
			t.Errorf("account %q: second page %+v, %v", account, rest, err)
		}
	}
	shown, err := o.Attachment(ctx, "acme", f.id)
	if err != nil || shown.Receipt == nil || shown.Facts.Filename != f.facts.Filename {
		t.Errorf("shown %+v, %v", shown, err)
	}
	if _, err := o.Attachment(ctx, "zeta", f.id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another account's: %v", err)
	}
	found, err := o.VerifyAttachment(ctx, "acme", f.id)
	if err != nil || !found.Sound || found.SHA256 != f.facts.SHA256 {
		t.Errorf("verified %+v, %v", found, err)
	}
	if _, err := o.VerifyAttachment(ctx, "acme", half.id); !errors.Is(err, store.ErrNotVerified) {
		t.Errorf("incomplete: %v", err)
	}
}

// A directory has one server. While it starts, before its socket answers, operators are told that it is in use.
func TestOneServerPerDirectory(t *testing.T) {
	r := newRig(t)
	if _, err := New(t.Context(), r.opts); !errors.Is(err, istore.ErrLocked) {
		t.Errorf("second server: %v", err)
	}
	if err := r.operate(func(admin.Operator) error { return nil }); !errors.Is(err, istore.ErrLocked) {
		t.Errorf("operator before the socket: %v", err)
	}
}

// The control socket is for the owner alone, replaces what a crash left, and works below a path of any length.
func TestControlSocket(t *testing.T) {
	for name, dir := range map[string]string{"short": "d", "long": strings.Repeat("long-name/", 15) + "d"} {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, dir: filepath.Join(t.TempDir(), dir)}
			r.opts = newRig(t).opts
			r.opts.Dir = r.dir
			r.open()
			defer r.close()
			for range 2 { // the second finds the first one's socket
				stop := r.running()
				info, err := os.Stat(filepath.Join(r.dir, "control.sock"))
				if err != nil || info.Mode() != os.ModeSocket|0o600 {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				client, err := admin.Dial(t.Context(), r.dir)
				check(t, err)
				if _, err := client.Tokens(t.Context()); err != nil {
					t.Error(err)
				}
				stop()
				if _, err := admin.Dial(t.Context(), r.dir); !errors.Is(err, admin.ErrNotRunning) {
					t.Errorf("after the stop: %v", err)
				}
				r.restart()
			}
			if _, err := admin.Listen(durable.OS(), filepath.Join(r.dir, "server.db")); err == nil {
				t.Error("a socket below a file")
			}
		})
	}
}
