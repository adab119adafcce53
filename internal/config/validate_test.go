package config

import (
	"log/slog"
	"strings"
	"testing"
)

// One file with a mistake of every kind gives all of them at once, each with its line and, where there is one, the key
// that was meant.
func TestAllProblemsAtOnce(t *testing.T) {
	got := problemsOf(t, `version = 2
stat_dir = "/x"
workers = 3
[uplnk]
a = 1
[uplink]
chunksize = "1MiB"
zebra = 1
driver = "fieldgv"
workers = "4"
idle_timeout = 30
answer_timeout = "5"
chunk_size = 1048576
[storage]
warn_free = "64"
reserve = "1.5GiB"
[watch.cam]
path = 7
include = "*.jpg"
exclude = ["a", 1,
  "[", "x/y"]
parent = "diretory"
adopt = true
[watch."a b"]
path = "/y"
[log]
level = "INFO"
format = ""
[control]
grup = "x"
`)
	want := `f.toml:1: version: want 1, got 2 (this program reads no other format)
f.toml:2: stat_dir: unknown key or table (did you mean "state_dir"?)
f.toml:3: workers: unknown key or table (did you mean "uplink.workers"?)
f.toml:4: uplnk: unknown key or table (did you mean "uplink"?)
f.toml:7: uplink.chunksize: unknown key (did you mean "chunk_size"?)
f.toml:8: uplink.zebra: unknown key (known here: accept_grade, account, answer_timeout, ca_file, chunk_size, client_cert, client_key, credential, driver, endpoint, http, idle_timeout, proxy, proxy_credential, rate_limit, retry, small, verify, webhook, webhook_credential, windows, workers)
f.toml:9: uplink.driver: want "fieldgw", "tus" or "http", got "fieldgv" (did you mean "fieldgw"?)
f.toml:10: uplink.workers: want a whole number, got a string
f.toml:11: uplink.idle_timeout: want a string in quotes, got a number without a unit (durations are strings with a unit, such as "30s")
f.toml:12: uplink.answer_timeout: want a duration such as "30s" or "5m", got "5" (add a unit: ms, s, m, h)
f.toml:13: uplink.chunk_size: want a string in quotes, got a number without a unit (sizes are strings with a unit, such as "64MiB")
f.toml:15: storage.warn_free: want a size such as "64MiB", got "64" (add a unit: B, kB, KiB, MB, MiB, GB, GiB)
f.toml:16: storage.reserve: want a size such as "64MiB", got "1.5GiB" (the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, for whole numbers)
f.toml:18: watch.cam.path: want a string in quotes, got a number without a unit
f.toml:19: watch.cam.include: want a list of strings, got a string (write ["*.jpg"])
f.toml:20: watch.cam.exclude[1]: want a string in quotes, got a number without a unit
f.toml:21: watch.cam.exclude[2]: malformed pattern "[" (the signs are *, ?, [a-z] and \ before one of them)
f.toml:21: watch.cam.exclude[3]: patterns match the name without its directories, so "x/y" matches nothing
f.toml:22: watch.cam.parent: want "directory", "sidecar", "pattern" or "none", got "diretory" (did you mean "directory"?)
f.toml:23: watch.cam.adopt: want a string in quotes, got a boolean
f.toml:24: watch."a b": a name is made of letters, digits, _ and -, at most 64
f.toml:27: log.level: want "debug", "info", "warn" or "error", got "INFO" (did you mean "info"?)
f.toml:28: log.format: want "auto", "text", "json" or "journal", got ""
f.toml:30: control.grup: unknown key (did you mean "group"?)`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A syntax error shows the line and a caret under the place, and stops the rules that would guess about the rest.
func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[log]\nlevel = \"info\n[watch.a]\n", `f.toml:2: basic strings cannot have new lines
  2 | level = "info
    |              ^`},
		{"a = 1\na = 2\n", "f.toml:2: key a is already defined\n  2 | a = 2\n    | ^"},
		{"\"x\\n\\u001b[31m\" = 1\n\"x\\n\\u001b[31m\" = 2\n", `f.toml:2: key x\n\x1b[31m is already defined` + "\n" + `  2 | "x\n\u001b[31m" = 2` + "\n    | ^"},
		{"\tlögé = 1\n", "f.toml:1: expected '=' after key\n  1 |  lögé = 1\n    |   ^"},
		{"x = \x1b[31m\n", "f.toml:1: unexpected character U+001B at start of value\n  1 | x = \uFFFD[31m\n    |     ^"},
		{strings.Repeat("é", 90) + "\n", ""},
		{"uplink.credential = \"fgw1.acct.dev.SECRET\n", "f.toml:1: basic strings cannot have new lines\n  1 | uplink.credential = \"fgw1.…"},
	} {
		got := problemsOf(t, c.text)
		if c.want != "" && got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
		if strings.Contains(got, "SECRET") || !strings.HasPrefix(got, "f.toml:") {
			t.Errorf("%q: %s", c.text, got)
		}
	}
}

// Each rule between values refuses its case at the right line, and lets its neighbour pass.
func TestRules(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"state_dir = \"\"", "1: state_dir: want a directory of its own"},
		{"state_dir = \"/\"", "1: state_dir: want a directory of its own"},
		{"state_dir = \"var/lib\"", "1: state_dir: want an absolute path"},
		{"state_dir = \"/var/../lib/\"", `1: state_dir: want the path in its shortest form, got "/var/../lib/" (write "/lib")`},
		{"state_dir = \"/a\\u0000b\"", "1: state_dir: no path can look like this"},
		{"device.id = \"a b\"", "1: device.id: an ID is made of"},
		{"device.id = \"A-b_9\"", ""},

		{"[watch.a]\npath='/d'\n[watch.b]\npath='/d'", "4: watch.b.path: the same directory as watch.a"},
		{"[watch.b]\npath='/d'\n[watch.a]\npath='/d/e'", "4: watch.a.path: the path lies inside watch.b, \"/d\""},
		{"[watch.b]\npath='/d'\nrecursive=false\n[watch.a]\npath='/d/e'", ""},
		{"[watch.b]\npath='/d'\n[watch.a]\npath='/de'", ""},
		{"[watch.a]\npath='/var/lib/fieldgw/accounts/x'", "2: watch.a.path: the path lies inside state_dir"},
		{"[watch.a]\npath='/var/lib/fieldgw'", "2: watch.a.path: the path lies inside state_dir"},
		{"[watch.a]\npath='/var/lib/fieldgw/captured'", "2: watch.a.path: the path lies inside state_dir"},
		{"[watch.a]\npath='/var/lib/fieldgw/capture'", ""},
		{"[watch.a]\npath='/c'\nmarker='DCIM/card.txt'\nevents='poll'\ntemporary=['*.up']", ""},
		{"[watch.a]\npath='/c'\nmarker='/c/x'", "3: watch.a.marker: want the name of a file in the directory of the watch"},
		{"[watch.a]\npath='/c'\nmarker='../x'", "3: watch.a.marker: want the name of a file in the directory of the watch"},
		{"[watch.a]\npath='/c'\nmarker='.'", "3: watch.a.marker: want the name of a file in the directory of the watch"},
		{"[watch.a]\npath='/c'\nmarker='a//x'", "3: watch.a.marker: want the path in its shortest form"},
		{"[watch.a]\npath='/c'\nevents='none'", "3: watch.a.events: want \"auto\" or \"poll\""},
		{"[watch.a]\npath='/c'\ntemporary=['[']", "3: watch.a.temporary[0]: malformed pattern"},
		{"[watch.a]\npath='/var/lib/fieldgw/capture/cam1'", ""},
		{"[watch.a]\npath='/var/lib'", "2: watch.a.path: state_dir \"/var/lib/fieldgw\" lies inside the path"},
		{"[watch.a]\npath='/'", "2: watch.a.path: state_dir \"/var/lib/fieldgw\" lies inside the path"},
		{"[watch.a]\nrecursive=false\npath='/var/lib'", ""},
		{"[watch.a]\npath='/x'\nsettle='1ms'", "3: watch.a.settle: 1ms is outside 10ms to 10m"},
		{"[watch.a]\npath='/x'\nsettle='11m'", "3: watch.a.settle: 11m is outside 10ms to 10m"},
		{"[watch.a]\npath='/x'\ninclude=['']", "3: watch.a.include[0]: an empty pattern"},
		{"[watch.a]\npath='/x'\ninclude=[\n'a',\n\n'[a-']", "6: watch.a.include[1]: malformed pattern"},
		{"[watch.a]\npath='/x'\ninclude=['\\[']", ""},
		{"[watch]\npath='/x'", "2: watch.path: want a table, got a string (write [watch.NAME] and its keys below)"},
		{"[[watch]]\npath='/x'", "1: watch: want a table, got a list (write [watch.NAME] and its keys below)"},
		{"storage = 5", "1: storage: want a table, got a number without a unit (write [storage] and its keys below)"},
		{"[watch.a]\npath=1979-05-27", "2: watch.a.path: want a string in quotes, got a date or time"},
		{"[watch.a]\npath='/x'\nrecursive=1.5", "3: watch.a.recursive: want true or false, got a number with a fraction"},

		{"[storage]\nstaging_grace='29m'", "2: storage.staging_grace: 29m is outside 30m to 2h"},
		{"[storage]\nstaging_grace='121m'", "2: storage.staging_grace: 2h1m is outside 30m to 2h"},
		{"[storage]\nwarn_free='1MiB'", "2: storage.warn_free: reserve (32MiB) is above warn_free (1MiB)"},
		{"[storage]\nwarn_free='1MiB'\nreserve='1MiB'", ""},

		{"uplink.endpoint='http://h.example'", "1: uplink.endpoint: http without TLS is allowed to this machine only (use https)"},
		{"uplink.endpoint='http://127.0.0.1.example.com'", "1: uplink.endpoint: http without TLS"},
		{"uplink.endpoint='http://127.0.0.2:80/x'", ""},
		{"uplink.endpoint='http://[::1]:80'", ""},
		{"uplink.endpoint='http://localhost'", ""},
		{"uplink.endpoint='https://[fe80::1%25wlan0]:8443'", "1: uplink.endpoint: no certificate names an address with a zone"},
		{"uplink.proxy='http://proxy:3128'", ""},
		{"uplink.proxy='socks5h://[::1]:1080'", ""},
		{"uplink.proxy='none'", ""},
		{"uplink.proxy='http://u:SECRET@proxy:3128'", "1: uplink.proxy: a user or password in the URL is not allowed (write user:password into the file"},
		{"uplink.proxy='proxy:3128'", "1: uplink.proxy: want a URL"},
		{"uplink.proxy='ftp://proxy'", "1: uplink.proxy: want http, https, socks5 or socks5h"},
		{"uplink.proxy='http://proxy/path'", "1: uplink.proxy: the URL of a proxy has no path"},
		{"uplink.proxy='http://proxy'\nuplink.endpoint='http://localhost'", "1: uplink.proxy: an http endpoint is on this machine"},
		{"uplink.client_cert='/c'\nuplink.client_key='/k'", ""},
		{"uplink.client_cert='/c'", "1: uplink.client_cert: a certificate and its key are given together"},
		{"uplink.client_key='/k'", "1: uplink.client_key: a certificate and its key are given together"},
		{"uplink.client_key='k'\nuplink.client_cert='/c'", "1: uplink.client_key: want an absolute path"},
		{"uplink.proxy_credential='p'", "1: uplink.proxy_credential: want an absolute path"},
		{"uplink.endpoint='ftp://h'", "1: uplink.endpoint: want an https URL, got the scheme \"ftp\""},
		{"uplink.endpoint='h.example'", "1: uplink.endpoint: want a URL"},
		{"uplink.endpoint='https://:443'", "1: uplink.endpoint: want a URL"},
		{"uplink.endpoint='https://h:0'", "1: uplink.endpoint: port \"0\" is outside"},
		{"uplink.endpoint='https://h:65536'", "1: uplink.endpoint: port \"65536\" is outside"},
		{"uplink.endpoint='https://h?a=SECRET'", "1: uplink.endpoint: the URL must not have a query"},
		{"uplink.endpoint='https://u:SECRET@h'", "1: uplink.endpoint: a user or password in the URL"},
		{"uplink.endpoint='https://u:SECRET@h:x'", "1: uplink.endpoint: want a URL"},
		{"uplink.credential='fgw1.acct.dev.SECRET'", "1: uplink.credential: want the path of a file, got what looks like the token itself"},
		{"uplink.driver='fgw1.acct.dev.SECRET'", "1: uplink.driver: want \"fieldgw\", \"tus\" or \"http\", got a value that looks like a token"},
		{"uplink.accept_grade='verified-digest'", ""},
		{"uplink.accept_grade='length-only'", "1: uplink.accept_grade: \"length-only\" can never count as delivery: bytes of the right length may be any bytes"},
		{"uplink.accept_grade='registered-durable'", "1: uplink.accept_grade: want \"registered\" or \"verified-digest\""},
		{"uplink.driver='http'\nuplink.webhook='https://h/x'\nuplink.webhook_credential='/t'", ""},
		{"uplink.driver='http'\nuplink.webhook='https://h/x?key=SECRET'", "2: uplink.webhook: the URL must not have a query"},
		{"uplink.driver='http'\nuplink.webhook='http://h/x'", "2: uplink.webhook: http without TLS"},
		{"uplink.webhook='https://h/x'", "1: uplink.webhook: fieldgw-server registers by itself"},
		{"uplink.webhook_credential='/t'", "1: uplink.webhook_credential: there is no webhook"},
		{"[uplink.http]\nmethod='PATCH'", "2: uplink.http.method: want \"PUT\" or \"POST\""},
		{"[uplink.http]\npath='{parent}/{filename}'", "2: uplink.http.path: unusable template: without {id} two files could get one name (such as"},
		{"uplink.ca_file='ca.pem'", "1: uplink.ca_file: want an absolute path"},
		{"uplink.chunk_size='127KiB'", "1: uplink.chunk_size: 127KiB is outside 128KiB to 64MiB (or \"auto\")"},
		{"uplink.chunk_size='65MiB'", "1: uplink.chunk_size: 65MiB is outside"},
		{"uplink.chunk_size='128KiB'", ""},
		{"uplink.chunk_size='auto'", ""},
		{"uplink.workers=0", "1: uplink.workers: 0 is outside 1 to 16"},
		{"uplink.workers=17", "1: uplink.workers: 17 is outside 1 to 16"},
		{"uplink.small='1500kB'", "1: uplink.small: 1500kB is no power of two (the nearest are 1MiB and 2MiB)"},
		{"uplink.small='512B'", "1: uplink.small: 512B is outside 1KiB to 1GiB"},
		{"uplink.small='64KiB'", ""},
		{"uplink.rate_limit='500kB'", "1: uplink.rate_limit: want a rate such as \"500kB/s\", got \"500kB\" (end it with /s)"},
		{"uplink.rate_limit='0/s'", "1: uplink.rate_limit: want a rate such as \"500kB/s\", got \"0/s\" (the empty string is no limit)"},
		{"uplink.rate_limit='fast'", "1: uplink.rate_limit: want a rate such as \"500kB/s\", got \"fast\""},
		{"uplink.rate_limit='999B/s'", "1: uplink.rate_limit: 999B/s is below 1kB/s"},
		{"uplink.rate_limit=''", ""},
		{"uplink.rate_limit=500", "1: uplink.rate_limit: want a string in quotes, got a number without a unit (rates are strings with a unit, such as \"500kB/s\")"},
		{"[uplink]\nwindows=[\n'mon 18:00-20:00',\n'tue 18:00-25:00']", "4: uplink.windows[1]: no such time at character 11 of \"tue 18:00-25:00\" (times are 00:00 to 23:59; a window may end at 24:00)"},
		{"uplink.windows='mon 18:00-20:00'", "1: uplink.windows: want a list of strings, got a string (write [\"mon 18:00-20:00\"])"},
		{"uplink.windows=[1]", "1: uplink.windows[0]: want a string in quotes, got a number without a unit"},
		{"uplink.windows=[]", ""},
		{"uplink.idle_timeout='0s'", "1: uplink.idle_timeout: 0s is outside"},
		{"uplink.answer_timeout='2h'", "1: uplink.answer_timeout: 2h is outside"},
		{"[uplink.retry]\nsecond='5s-3m'", "2: uplink.retry.second: second (5s-3m) is below first (15s-45s)"},
		{"[uplink.retry]\nthird='5m-2m'", "2: uplink.retry.third: the range \"5m-2m\" begins above its end"},
		{"[uplink.retry]\ncap='30m-25h'", "2: uplink.retry.cap: 30m-25h is outside 10ms to 24h"},
		{"[uplink.retry]\nfirst='0s-1s'", "2: uplink.retry.first: 0s-1s is outside 10ms to 24h"},
		{"[uplink.retry]\nfirst='30s'", "2: uplink.retry.first: want a range such as \"15s-45s\", got \"30s\""},

		{"control.socket='/" + strings.Repeat("x", 107) + "'", "1: control.socket: a socket's path has at most 107 bytes, this one has 108"},
		{"control.socket=''", "1: control.socket: fieldgwctl needs a socket"},
		{"control.group='a b'", "1: control.group: no group is called \"a b\""},
	} {
		got := problemsOf(t, c.text)
		if c.want == "" && got != "" || c.want != "" && !strings.HasPrefix(got, "f.toml:"+c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%q\n got %q\nwant %q", c.text, got, c.want)
		}
		if strings.Contains(got, "SECRET") {
			t.Errorf("%q: a secret is echoed: %s", c.text, got)
		}
	}
}

// A level means the same to log/slog.
func TestSlogLevels(t *testing.T) {
	for word, want := range map[LogLevel]slog.Level{LogDebug: slog.LevelDebug, LogInfo: slog.LevelInfo, LogWarn: slog.LevelWarn, LogError: slog.LevelError} {
		if got := word.Slog(); got != want || !strings.EqualFold(got.String(), string(word)) {
			t.Errorf("%s is %s", word, got)
		}
	}
}

// Values are shown on one line, cut at a letter, and never when they hold a token.
func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\x1b":                    `"a\nb\x1b"`,
		strings.Repeat("é", 31):       `"` + strings.Repeat("é", 30) + `"…`,
		"x" + strings.Repeat("é", 31): `"x` + strings.Repeat("é", 29) + `"…`,
		"the fgw1.a.b.c":              "a value that looks like a token",
	} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}
