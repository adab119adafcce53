package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const (
	// socketName is the control socket's name in the data directory.
	socketName = "control.sock"
	// bindDir is where the socket is bound, closed to everybody else, before it moves to its name with its mode set.
	bindDir = ".control"
	// maxSocketPath is the longest path that a unix socket address holds (unix(7), sun_path with its end).
	maxSocketPath = 107
)

// Listen makes the control socket of a data directory, mode 0600, in the place of one that a former server left. The
// caller holds the directory's lock. Closing the listener leaves the name, which then answers nobody.
func Listen(fs *durable.FS, dir string) (net.Listener, error) {
	private := filepath.Join(dir, bindDir)
	if err := fs.MkdirAll(private, 0o700); err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	temp := filepath.Join(private, "s")
	if err := fs.Remove(temp); err != nil && !durable.IsNotExist(err) {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	address, done, err := reachable(temp)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err = errors.Join(err, done()); err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = fs.Rename(temp, filepath.Join(dir, socketName))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make control socket: %w", err), ln.Close())
	}
	return ln, nil
}

// reachable returns an address for a socket path of any length: a long one is reached through the open directory. The
// address is good until done is called.
func reachable(path string) (address string, done func() error, err error) {
	if len(path) <= maxSocketPath {
		return path, func() error { return nil }, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), dir.Close, nil
}

// Handler answers operators on the control socket.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokens", a.createToken)
	mux.HandleFunc("GET /tokens", a.listTokens)
	mux.HandleFunc("POST /tokens/{id}/revoke", a.revokeToken)
	mux.HandleFunc("GET /attachments", a.listAttachments)
	mux.HandleFunc("GET /attachments/{account}/{id}", a.showAttachment)
	mux.HandleFunc("POST /attachments/{account}/{id}/verify", a.verifyAttachment)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply.Problem(w, wire.CodeNotFound, "no such route")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply.Common(w.Header())
		mux.ServeHTTP(w, r)
	})
}

func (a *Admin) createToken(w http.ResponseWriter, r *http.Request) {
	var request TokenRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxControlBody)).Decode(&request); err != nil {
		reply.Problem(w, wire.CodeInvalid, err.Error())
		return
	}
	t, err := a.CreateToken(r.Context(), request)
	a.answer(w, t, err)
}

func (a *Admin) listTokens(w http.ResponseWriter, r *http.Request) {
	all, err := a.Tokens(r.Context())
	a.answer(w, all, err)
}

func (a *Admin) revokeToken(w http.ResponseWriter, r *http.Request) {
	t, err := a.RevokeToken(r.Context(), r.PathValue("id"))
	a.answer(w, t, err)
}

func (a *Admin) listAttachments(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	page, err := a.Attachments(r.Context(), Query{Account: q.Get("account"), After: q.Get("after"), AfterID: q.Get("after_id")})
	a.answer(w, page, err)
}

func (a *Admin) showAttachment(w http.ResponseWriter, r *http.Request) {
	row, err := a.Attachment(r.Context(), r.PathValue("account"), r.PathValue("id"))
	a.answer(w, row, err)
}

func (a *Admin) verifyAttachment(w http.ResponseWriter, r *http.Request) {
	found, err := a.VerifyAttachment(r.Context(), r.PathValue("account"), r.PathValue("id"))
	a.answer(w, found, err)
}

// refusals are the errors that an operator can tell apart, with the codes that carry them over the socket.
var refusals = []struct {
	err  error
	code wire.Code
}{
	{ErrInvalid, wire.CodeInvalid},
	{store.ErrNotFound, wire.CodeNotFound},
	{store.ErrNotVerified, wire.CodeNotVerified},
	{store.ErrFull, wire.CodeServerFull},
}

// answer sends an outcome. The one who asks owns the data directory, so that errors are told in full.
func (a *Admin) answer(w http.ResponseWriter, message any, err error) {
	if err == nil {
		reply.JSON(w, http.StatusOK, message)
		return
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			reply.Problem(w, r.code, err.Error())
			return
		}
	}
	a.log.Error("operator's request could not be answered", slog.Any(logging.KeyErr, err))
	reply.Problem(w, wire.CodeInternal, err.Error())
}
