package config

import (
	"fmt"
	"math/bits"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fieldgw/fieldgw/internal/wire"
)

const (
	maxName     = 64  // letters of a watch name or a device ID
	maxPatterns = 256 // patterns of each kind of one watch
	maxSocket   = 107 // bytes of a path in sockaddr_un, without its final zero (unix(7))
	maxPath     = 4095

	captureDir = "capture" // the one directory below state_dir that is made for watches
)

// validate applies every rule that looks at values. A rule over several keys is skipped when one of them was refused
// already: its default stands in for it and would only give a second, misleading problem.
func (l *loader) validate(c *Config) {
	l.checkPath("state_dir", c.StateDir)
	if c.StateDir == "/" || c.StateDir == "" {
		l.problemAt("state_dir", "want a directory of its own, got "+quote(c.StateDir), "leave the key out for the default")
	}
	if c.Device.ID != "" && (!isBare(c.Device.ID) || len(c.Device.ID) > maxName) {
		l.problemAt("device.id", fmt.Sprintf("an ID is made of letters, digits, _ and -, at most %d", maxName), "")
	}
	l.validateWatches(c)
	l.validateStorage(c.Storage)
	l.validateUplink(c.Uplink)
	l.validateControl(c.Control)
}

// problemAt reports something about a key of any file, at the place where it or the nearest table around it stands.
func (l *loader) problemAt(key, message, hint string) {
	p := Problem{File: l.main, Path: key, Message: message, Hint: hint}
	for at := key; at != ""; {
		if pos, ok := l.index[at]; ok {
			p.File, p.Line = pos.file, pos.line
			break
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	l.report(p)
}

// sound reports whether none of the keys was refused.
func (l *loader) sound(keys ...string) bool {
	for _, key := range keys {
		if l.bad[key] {
			return false
		}
	}
	return true
}

// checkPath demands an absolute path in its shortest form; an empty one is not this rule's business.
func (l *loader) checkPath(key, value string) {
	switch {
	case value == "" || !l.sound(key):
	case strings.Contains(value, tokenPrefix) && !filepath.IsAbs(value):
		l.problemAt(key, "want the path of a file, got what looks like the token itself", "put the token into a file of mode 600")
	case strings.ContainsRune(value, 0) || len(value) > maxPath:
		l.problemAt(key, "no path can look like this: "+quote(value), "")
	case !filepath.IsAbs(value):
		l.problemAt(key, "want an absolute path, got "+quote(value), "")
	case filepath.Clean(value) != value:
		l.problemAt(key, "want the path in its shortest form, got "+quote(value), "write "+quote(filepath.Clean(value)))
	}
}

func (l *loader) validateWatches(c *Config) {
	watches := c.Watches()
	for _, w := range watches {
		key := joinPath("watch", w.Name)
		l.checkPath(key+".path", w.Path)
		switch {
		case !l.sound(key + ".path"):
		case w.Path == "":
			l.problemAt(key+".path", "a watch needs the path of its directory", `path = "/…"`)
		case l.sound("state_dir"):
			l.checkStateDir(key+".path", w, c.StateDir)
		}
		l.checkSpan(key+".settle", w.Settle, 10*time.Millisecond, 10*time.Minute)
		l.checkBinding(key, w)
		l.checkPatterns(key+".include", w.Include)
		l.checkPatterns(key+".exclude", w.Exclude)
		l.checkPatterns(key+".temporary", w.Temporary)
		l.checkMarker(key+".marker", w.Marker)
	}
	for i, b := range watches {
		for _, a := range watches[:i] {
			if l.sound("watch."+a.Name+".path", "watch."+b.Name+".path") {
				l.checkOverlap(a, b)
			}
		}
	}
}

// checkStateDir keeps watches away from the daemon's own files: it would adopt its own spool. The capture directory
// is the exception, because a rename from there into the spool stays on one mount.
func (l *loader) checkStateDir(key string, w *Watch, stateDir string) {
	capture := filepath.Join(stateDir, captureDir)
	switch {
	case within(w.Path, capture):
	case within(w.Path, stateDir):
		l.problemAt(key, "the path lies inside state_dir "+quote(stateDir), "only "+quote(capture)+" may be watched there")
	case within(stateDir, w.Path) && w.Recursive:
		l.problemAt(key, "state_dir "+quote(stateDir)+" lies inside the path", "watch another directory, or set recursive = false")
	}
}

// checkOverlap refuses two watches that would see the same file. Paths are compared as written: two names for one
// directory (a link, a second mount) are found by the watcher, which opens it.
func (l *loader) checkOverlap(a, b *Watch) {
	outer, inner := a, b
	if within(a.Path, b.Path) && a.Path != b.Path {
		outer, inner = b, a
	}
	switch {
	case a.Path == b.Path:
		l.problemAt("watch."+b.Name+".path", "the same directory as watch."+a.Name, "")
	case within(inner.Path, outer.Path) && outer.Recursive:
		l.problemAt("watch."+inner.Name+".path", "the path lies inside watch."+outer.Name+", "+quote(outer.Path),
			"drop one, or set recursive = false on the outer one")
	}
}

// within reports whether p is dir or lies below it. Both are clean.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func (l *loader) checkPatterns(key string, patterns []string) {
	if len(patterns) > maxPatterns {
		l.problemAt(key, fmt.Sprintf("more than %d patterns", maxPatterns), "")
		return
	}
	for i, p := range patterns {
		at := elementPath(key, i)
		switch _, err := path.Match(p, ""); {
		case !l.sound(at):
		case err != nil:
			l.problemAt(at, "malformed pattern "+quote(p), "the signs are *, ?, [a-z] and \\ before one of them")
		case p == "":
			l.problemAt(at, "an empty pattern matches nothing", "")
		case strings.Contains(p, "/"):
			l.problemAt(at, "patterns match the name without its directories, so "+quote(p)+" matches nothing", "")
		}
	}
}

// checkMarker demands the path of a file below the directory of its watch.
func (l *loader) checkMarker(key, marker string) {
	switch {
	case marker == "" || !l.sound(key):
	case filepath.IsAbs(marker) || !filepath.IsLocal(marker) || filepath.Clean(marker) == ".":
		l.problemAt(key, "want the name of a file in the directory of the watch, got "+quote(marker), "")
	case filepath.Clean(marker) != marker:
		l.problemAt(key, "want the path in its shortest form, got "+quote(marker), "write "+quote(filepath.Clean(marker)))
	case strings.ContainsRune(marker, 0) || len(marker) > maxPath:
		l.problemAt(key, "no path can look like this: "+quote(marker), "")
	}
}

// checkSpan demands low <= value <= high.
func (l *loader) checkSpan(key string, value Duration, low, high time.Duration) {
	if l.sound(key) && (value.Std() < low || value.Std() > high) {
		l.problemAt(key, fmt.Sprintf("%s is outside %s to %s", value, Duration(low), Duration(high)), "")
	}
}

func (l *loader) validateStorage(s Storage) {
	l.checkSpan("storage.staging_grace", s.StagingGrace, 30*time.Minute, 120*time.Minute)
	if l.sound("storage.reserve", "storage.warn_free") && s.Reserve > s.WarnFree {
		key := "storage.reserve"
		if _, set := l.index[key]; !set {
			key = "storage.warn_free"
		}
		l.problemAt(key, fmt.Sprintf("reserve (%s) is above warn_free (%s)", s.Reserve, s.WarnFree),
			"the warning must come before adoption stops")
	}
}

func (l *loader) validateUplink(u Uplink) {
	l.checkEndpoint("uplink.endpoint", u.Endpoint)
	if l.sound("uplink.account") && !wire.ValidName(u.Account) {
		l.problemAt("uplink.account", quote(u.Account)+" is no account", "1 to 63 of a-z, 0-9 and hyphen")
	}
	l.checkPath("uplink.credential", u.Credential)
	l.checkPath("uplink.ca_file", u.CAFile)
	l.checkPath("uplink.client_cert", u.ClientCert)
	l.checkPath("uplink.client_key", u.ClientKey)
	l.checkPath("uplink.proxy_credential", u.ProxyCredential)
	if l.sound("uplink.client_cert", "uplink.client_key") && (u.ClientCert == "") != (u.ClientKey == "") {
		key, other := "uplink.client_cert", "client_key"
		if u.ClientCert == "" {
			key, other = "uplink.client_key", "client_cert"
		}
		l.problemAt(key, "a certificate and its key are given together", "set "+other+" too")
	}
	l.checkProxy("uplink.proxy", u)
	const smallest, largest = Size(128 << 10), Size(64 << 20)
	if l.sound("uplink.chunk_size") && (u.ChunkSize.Max < smallest || u.ChunkSize.Max > largest) {
		l.problemAt("uplink.chunk_size", fmt.Sprintf("%s is outside %s to %s", u.ChunkSize, smallest, largest), `or "auto"`)
	}
	if l.sound("uplink.workers") && (u.Workers < 1 || u.Workers > 16) {
		l.problemAt("uplink.workers", fmt.Sprintf("%d is outside 1 to 16", u.Workers), "")
	}
	l.checkSmall(u.Small)
	const slowest = Rate(1000)
	if l.sound("uplink.rate_limit") && u.RateLimit != 0 && u.RateLimit < slowest {
		l.problemAt("uplink.rate_limit", fmt.Sprintf("%s is below %s", u.RateLimit, slowest), "")
	}
	l.checkSpan("uplink.idle_timeout", u.IdleTimeout, 100*time.Millisecond, time.Hour)
	l.checkSpan("uplink.answer_timeout", u.AnswerTimeout, 100*time.Millisecond, time.Hour)
	l.validateRetry(u.Retry)
	l.validateForeign(u)
}

// checkSmall demands a power of two: the queue sorts by those.
func (l *loader) checkSmall(s Size) {
	const key, smallest, largest = "uplink.small", Size(1 << 10), Size(1 << 30)
	switch {
	case !l.sound(key):
	case s < smallest || s > largest:
		l.problemAt(key, fmt.Sprintf("%s is outside %s to %s", s, smallest, largest), "")
	case s&(s-1) != 0:
		below := Size(1) << (bits.Len64(uint64(s)) - 1)
		l.problemAt(key, s.String()+" is no power of two", fmt.Sprintf("the nearest are %s and %s", below, 2*below))
	}
}

// validateRetry demands ranges that never fall: a later attempt must not be hastier than an earlier one.
func (l *loader) validateRetry(r Retry) {
	steps := []struct {
		name string
		r    DurationRange
	}{{"first", r.First}, {"second", r.Second}, {"third", r.Third}, {"cap", r.Cap}}
	for i, s := range steps {
		key := "uplink.retry." + s.name
		if l.sound(key) && (s.r.Low.Std() < 10*time.Millisecond || s.r.High.Std() > 24*time.Hour) {
			l.problemAt(key, fmt.Sprintf("%s is outside 10ms to 24h", s.r), "")
		}
		if i == 0 {
			continue
		}
		before := steps[i-1]
		if l.sound(key, "uplink.retry."+before.name) && (s.r.Low < before.r.Low || s.r.High < before.r.High) {
			l.problemAt(key, fmt.Sprintf("%s (%s) is below %s (%s)", s.name, s.r, before.name, before.r),
				"waits must not become shorter")
		}
	}
}

// checkEndpoint demands an https URL, or http to this machine. Messages never repeat the URL: it may hold a password.
func (l *loader) checkEndpoint(key, value string) {
	if value == "" || !l.sound(key) {
		return
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		l.problemAt(key, "want a URL such as \"https://fieldgw.example.com\"", "")
	case strings.Contains(u.Hostname(), "%"):
		l.problemAt(key, "no certificate names an address with a zone", "use a name, or an address without one")
	case u.Scheme != "https" && u.Scheme != "http":
		l.problemAt(key, "want an https URL, got the scheme "+quote(u.Scheme), "")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		l.problemAt(key, "http without TLS is allowed to this machine only", "use https")
	case u.User != nil:
		l.problemAt(key, "a user or password in the URL is not allowed", "the token belongs into the file that credential names")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(value, "#"):
		l.problemAt(key, "the URL must not have a query or fragment", "")
	case u.Port() != "":
		if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 {
			l.problemAt(key, "port "+quote(u.Port())+" is outside 1 to 65535", "")
		}
	}
}

// ProxyNone is the value of uplink.proxy that goes past every proxy.
const ProxyNone = "none"

// checkProxy demands the URL of a proxy without user and password. Messages never repeat it: it may hold a password.
func (l *loader) checkProxy(key string, uplink Uplink) {
	if uplink.Proxy == "" || uplink.Proxy == ProxyNone || !l.sound(key) {
		return
	}
	u, err := url.Parse(uplink.Proxy)
	switch {
	case err != nil || u.Hostname() == "":
		l.problemAt(key, "want a URL such as \"http://proxy.example.com:3128\", or \"none\"", "")
	case u.User != nil:
		l.problemAt(key, "a user or password in the URL is not allowed", "write user:password into the file that proxy_credential names")
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		l.problemAt(key, "want http, https, socks5 or socks5h, got the scheme "+quote(u.Scheme), "")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		l.problemAt(key, "the URL of a proxy has no path, query or fragment", "")
	case strings.HasPrefix(uplink.Endpoint, "http:"):
		l.problemAt(key, "an http endpoint is on this machine, and a proxy would see what is sent to it", "use https, or proxy = \"none\"")
	}
}

// isLoopback reports whether a host of a URL never leaves this machine (RFC 6761 §6.3 for the name).
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (l *loader) validateControl(c Control) {
	l.checkPath("control.socket", c.Socket)
	if l.sound("control.socket") {
		switch {
		case c.Socket == "":
			l.problemAt("control.socket", "fieldgwctl needs a socket", "leave the key out for the default")
		case len(c.Socket) > maxSocket:
			l.problemAt("control.socket",
				fmt.Sprintf("a socket's path has at most %d bytes, this one has %d", maxSocket, len(c.Socket)), "")
		}
	}
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(":,/", r) }
	if l.sound("control.group") && strings.ContainsFunc(c.Group, isOdd) {
		l.problemAt("control.group", "no group is called "+quote(c.Group), "")
	}
}
