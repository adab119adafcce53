package linkproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	maxLine        = 1024            // bytes of a command or an answer, line feed included
	controlTimeout = 5 * time.Second // for one command, from connect to answer
	answerOK       = "ok"
	answerRefused  = "error: "
)

// Control takes orders for a Proxy on a unix socket: one connection, one line with a command, one
// line with the answer. Commands are cut, restore, stall, cut-after N (bytes), rate N (bytes per
// second, 0 for no limit) and stats. The answer is "ok", for stats a Stats as JSON, or "error: "
// and a reason. A command has taken effect when its answer arrives.
type Control struct {
	listener *net.UnixListener
	proxy    *Proxy
}

// NewControl binds the socket at path, for the user alone, and starts nothing; Run or Close removes
// it. The path must not exist.
func NewControl(path string, p *Proxy) (*Control, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict control socket: %w", err), listener.Close())
	}
	return &Control{listener: listener, proxy: p}, nil
}

// Run answers commands, one connection after the other and none for longer than five seconds, until
// ctx ends; then it returns nil. It returns an error when the listener breaks. It is called once.
func (c *Control) Run(ctx context.Context) error {
	ctx, release := closeWith(ctx, c)
	defer release()
	for {
		conn, err := c.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept control: %w", err)
		}
		_, done := closeWith(ctx, conn)
		c.serve(conn)
		done()
	}
}

// Close removes the socket of a control that will not run; Run does so by itself.
func (c *Control) Close() error { return c.listener.Close() }

// serve answers one command; its caller closes conn. A client that went away gets no answer and needs none.
func (c *Control) serve(conn *net.UnixConn) {
	if err := conn.SetDeadline(time.Now().Add(controlTimeout)); err != nil {
		return
	}
	line, err := readLine(conn)
	if err != nil {
		return
	}
	answer, err := c.execute(line)
	if err != nil {
		answer = answerRefused + err.Error()
	}
	_, _ = io.WriteString(conn, answer+"\n")
}

func (c *Control) execute(line string) (string, error) {
	cmd, err := parseCommand(line)
	if err != nil {
		return "", err
	}
	switch cmd.verb {
	case "cut":
		c.proxy.Cut()
	case "restore":
		c.proxy.Restore()
	case "stall":
		c.proxy.Stall()
	case "cut-after":
		c.proxy.CutAfter(cmd.n)
	case "rate":
		c.proxy.SetRate(cmd.n)
	case "stats":
		out, err := json.Marshal(c.proxy.Stats())
		return string(out), err
	}
	return answerOK, nil
}

// command is a parsed control line; n is 0 for a verb that takes no number.
type command struct {
	verb string
	n    int64
}

// takesNumber lists every verb and whether a number follows it.
var takesNumber = map[string]bool{
	"cut": false, "restore": false, "stall": false, "stats": false, "cut-after": true, "rate": true,
}

// parseCommand accepts a verb and, where the verb wants one, a decimal number of zero or more,
// separated by white space.
func parseCommand(line string) (command, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return command{}, fmt.Errorf("%w: empty line", ErrBadCommand)
	}
	numbered, known := takesNumber[words[0]]
	switch {
	case !known:
		return command{}, fmt.Errorf("%w: %.32q is none of cut, restore, stall, cut-after N, rate N, stats", ErrBadCommand, words[0])
	case numbered && len(words) != 2:
		return command{}, fmt.Errorf("%w: %s takes one number", ErrBadCommand, words[0])
	case !numbered && len(words) != 1:
		return command{}, fmt.Errorf("%w: %s takes no argument", ErrBadCommand, words[0])
	case !numbered:
		return command{verb: words[0]}, nil
	}
	n, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || n < 0 {
		return command{}, fmt.Errorf("%w: %.32q is not a number of bytes", ErrBadCommand, words[1])
	}
	return command{words[0], n}, nil
}

// Do sends one command to the control socket at path and returns the answer without its line feed.
// It returns ErrRefused with the reason if the proxy did not carry it out, or an error of the
// socket. It takes no longer than ctx and five seconds.
func Do(ctx context.Context, path, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return "", fmt.Errorf("connect to control: %w", err)
	}
	_, release := closeWith(ctx, conn)
	defer release()
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", fmt.Errorf("send %q: %w", command, err)
	}
	answer, err := readLine(conn)
	if err != nil {
		return "", fmt.Errorf("read answer to %q: %w", command, err)
	}
	if reason, refused := strings.CutPrefix(answer, answerRefused); refused {
		return "", fmt.Errorf("%w: %s", ErrRefused, reason)
	}
	return answer, nil
}

// readLine reads a line of at most maxLine bytes; one without its line feed is an error.
func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxLine)).ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(line, "\n"), nil
}
