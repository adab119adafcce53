package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

type peerKey struct{}

// peer is what the kernel said about a connection's other end.
type peer struct {
	caller Caller
	err    error
}

// withPeer notes the credentials of a new connection. It is http.Server.ConnContext.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	caller, err := credentials(c)
	return context.WithValue(ctx, peerKey{}, peer{caller, err})
}

func credentials(c net.Conn) (Caller, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return Caller{}, fmt.Errorf("read peer credentials: %T is not a socket", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Caller{}, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return Caller{}, fmt.Errorf("read peer credentials: %w", err)
	}
	return Caller{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// callerOf names the process that asks, with its login name where there is one.
func callerOf(ctx context.Context) (Caller, error) {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		return Caller{}, errors.New("no peer credentials")
	}
	if p.err != nil {
		return Caller{}, p.err
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(p.caller.UID), 10)); err == nil {
		p.caller.User = u.Username
	}
	return p.caller, nil
}
