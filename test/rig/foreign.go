package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// Foreign is a server that nobody here wrote.
type Foreign struct {
	// Command makes the server's process, which keeps what it is given below dir and listens on addr. It is called for each
	// start; the directory is there, and what an earlier process left in it.
	Command func(ctx context.Context, dir, addr string) (*exec.Cmd, error)
	// Endpoint is the URL that a device is given, behind an address.
	Endpoint func(addr string) string
}

// Store is the directory of a foreign server.
func (r *Rig) Store() string { return r.Path("store") }

// ServerAddr is where the server listens, past the link.
func (r *Rig) ServerAddr() string { return r.serverAddr }

// startForeign starts the foreign server and waits until it takes connections.
func (r *Rig) startForeign(ctx context.Context) (*Process, error) {
	if err := os.MkdirAll(r.Store(), 0o755); err != nil {
		return nil, err
	}
	cmd, err := r.Foreign.Command(ctx, r.Store(), r.serverAddr)
	if err != nil {
		return nil, fmt.Errorf("start the foreign server: %w", err)
	}
	return r.launch(ctx, "foreign-server", cmd, func() (bool, error) { return listening(r.serverAddr) })
}

// listening looks a moment whether somebody takes connections.
func listening(addr string) (bool, error) {
	conn, err := net.DialTimeout("tcp", addr, readyPause)
	if err != nil {
		<-time.After(readyPause)
		return false, nil
	}
	return true, conn.Close()
}
