package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/logging"
)

const (
	// settle is how long the kernel must be silent before its state is looked at, and settleMost how long it may talk: a new
	// address, its routes and the end of the old one come in several messages.
	settle     = 300 * time.Millisecond
	settleMost = 2 * time.Second
	// period is how often is looked without being told.
	period = time.Minute
)

// groups are the messages that are asked for: addresses and routes of both families, and interfaces.
const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
	1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1)

// Watch calls changed after each change until ctx ends. up says whether there is a way to anywhere now.
func Watch(ctx context.Context, log *slog.Logger, changed func(up bool)) {
	hints := make(chan struct{}, 1)
	messages, err := open()
	if err != nil {
		log.Warn("the kernel does not tell of changed addresses; looking once a minute", slog.Any(logging.KeyErr, err))
	} else {
		done := make(chan struct{})
		go func() {
			defer close(done)
			listen(messages, hints)
		}()
		defer func() {
			_ = messages.Close() // which ends listen
			<-done
		}()
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	last := now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-hints:
			quiet(ctx, hints)
		}
		if next := now(); !next.equal(last) {
			last = next
			changed(next.up())
		}
	}
}

// quiet waits until there was no hint for a while.
func quiet(ctx context.Context, hints <-chan struct{}) {
	most := time.NewTimer(settleMost)
	defer most.Stop()
	for {
		select {
		case <-hints:
		case <-time.After(settle):
			return
		case <-most.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// open subscribes to the kernel's messages. The socket is one that the runtime polls, so that closing it ends a read.
func open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to address changes: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// listen turns messages into hints until the socket is closed. What a message says is not looked at; ENOBUFS says that some
// were lost, which is a hint as well.
func listen(messages *os.File, hints chan<- struct{}) {
	buf := make([]byte, 8<<10)
	for {
		_, err := messages.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		select {
		case hints <- struct{}{}:
		default:
		}
	}
}
