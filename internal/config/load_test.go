package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/policy"
)

// noEnv is an environment in which systemd has set nothing.
func noEnv(string) string { return "" }

// write makes a file below dir, with its directories, and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// problemsOf loads one main file and returns the rendered problems with the directory cut off.
func problemsOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	cfg, err := Load(write(t, dir, "f.toml", text), noEnv)
	if err == nil {
		return ""
	}
	var p *Problems
	if !errors.As(err, &p) || cfg != nil {
		t.Fatalf("Load = %v, %T %v; want no configuration and *Problems", cfg, err, err)
	}
	return strings.ReplaceAll(p.Error(), dir+"/", "")
}

// An empty file is the defaults, and they are the ones that the documentation promises.
func TestDefaults(t *testing.T) {
	cfg, err := Load(write(t, t.TempDir(), "f.toml", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Version:  1,
		StateDir: "/var/lib/fieldgw",
		Watch:    map[string]*Watch{},
		Storage:  Storage{WarnFree: 67108864, Reserve: 33554432, StagingGrace: Duration(time.Hour)},
		Uplink: Uplink{
			Driver: "fieldgw", Account: "local", ChunkSize: ChunkSize{Auto: true, Max: 8388608}, Workers: 4, Small: 1048576, Windows: []Window{},
			IdleTimeout: Duration(30 * time.Second), AnswerTimeout: Duration(300 * time.Second), AcceptGrade: "registered", Verify: "digest",
			HTTP: HTTP{"PUT", "{parent}/{date}/{id}-{filename}"},
			Retry: Retry{
				First:  DurationRange{Duration(15 * time.Second), Duration(45 * time.Second)},
				Second: DurationRange{Duration(60 * time.Second), Duration(180 * time.Second)},
				Third:  DurationRange{Duration(300 * time.Second), Duration(900 * time.Second)},
				Cap:    DurationRange{Duration(1800 * time.Second), Duration(3600 * time.Second)},
			},
		},
		Control: Control{Socket: "/run/fieldgw/control.sock", Group: "fieldgw"},
		Log:     Log{Level: "info", Format: "auto"},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("defaults:\n got %+v\nwant %+v", cfg, want)
	}
	if cfg.Uplink.Configured() {
		t.Error("a gateway without an endpoint counts as configured")
	}
}

// Every key reaches its field, in each of the ways TOML can write a table.
func TestEveryKey(t *testing.T) {
	text := `version = 1
state_dir = "/s"
device.id = "tablet-7"
watch.b = { path = "/b", recursive = false, parent = "sidecar", sidecar_wait = "1h", include = ["*.jpg", "*.pdf"], exclude = [".*"], temporary = ["*.up"], settle = "5s", events = "poll", marker = "m/x", adopt = "copy" }
[watch.a]
path = "/a"
[watch.c]
path = "/c"
parent = "pattern"
pattern = '(?P<parent>[^/]+)/.*'
repeated = "skip"
[storage]
warn_free = "1GiB"
reserve = "0"
staging_grace = "2h"
[uplink]
driver = "http"
account = "plant-7"
endpoint = "https://h.example:8443/base"
credential = "/c"
ca_file = "/ca"
chunk_size = "512KiB"
workers = 16
small = "64KiB"
rate_limit = "500kB/s"
windows = ["mon-fri 18:00-06:00", "sun 00:00-24:00"]
idle_timeout = "10s"
answer_timeout = "1m"
accept_grade = "verified-digest"
webhook = "https://hook.example/take"
webhook_credential = "/hook"
http = { method = "POST", path = "{id}" }
verify = "length"
retry = { first = "1s-2s", second = "2s-2s", third = "3s-4s", cap = "5s-6s" }
[control]
socket = "/x/s.sock"
group = ""
[log]
level = "debug"
format = "journal"
`
	cfg, err := Load(write(t, t.TempDir(), "f.toml", text), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	s := func(n int) Duration { return Duration(n) * Duration(time.Second) }
	pattern, refused := compilePattern(`(?P<parent>[^/]+)/.*`)
	if refused != nil {
		t.Fatal(refused)
	}
	want := &Config{
		Version: 1, StateDir: "/s", Device: Device{ID: "tablet-7"},
		Watch: map[string]*Watch{
			"a": {Name: "a", Path: "/a", Recursive: true, Parent: ParentDirectory, SidecarWait: s(600), Settle: s(2), Events: EventsAuto, Adopt: AdoptMove, Repeated: RepeatedSend},
			"c": {
				Name: "c", Path: "/c", Recursive: true, Parent: ParentPattern, Pattern: "(?P<parent>[^/]+)/.*",
				SidecarWait: s(600), Settle: s(2), Events: EventsAuto, Adopt: AdoptMove, Repeated: RepeatedSkip, pattern: pattern,
			},
			"b": {
				Name: "b", Path: "/b", Parent: ParentSidecar, SidecarWait: s(3600), Include: []string{"*.jpg", "*.pdf"}, Exclude: []string{".*"},
				Settle: s(5), Events: EventsPoll, Marker: "m/x", Temporary: []string{"*.up"}, Adopt: AdoptCopy, Repeated: RepeatedSend,
			},
		},
		Storage: Storage{WarnFree: 1 << 30, StagingGrace: s(7200)},
		Uplink: Uplink{
			Driver: DriverHTTP, Endpoint: "https://h.example:8443/base", Account: "plant-7", Credential: "/c", CAFile: "/ca",
			ChunkSize: ChunkSize{Max: 512 << 10}, Workers: 16, Small: 64 << 10, RateLimit: 500_000, Windows: []Window{
				{policy.Window{Days: [7]bool{1: true, 2: true, 3: true, 4: true, 5: true}, From: 18 * 60, To: 6 * 60}},
				{policy.Window{Days: [7]bool{0: true}, To: 24 * 60}},
			},
			IdleTimeout: s(10), AnswerTimeout: s(60), Verify: VerifyLength,
			AcceptGrade: AcceptVerifiedDigest, Webhook: "https://hook.example/take", WebhookCredential: "/hook", HTTP: HTTP{HTTPPost, "{id}"},
			Retry: Retry{DurationRange{s(1), s(2)}, DurationRange{s(2), s(2)}, DurationRange{s(3), s(4)}, DurationRange{s(5), s(6)}},
		},
		Control: Control{Socket: "/x/s.sock"},
		Log:     Log{Level: LogDebug, Format: FormatJournal},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if !cfg.Uplink.Configured() {
		t.Error("an endpoint is set, and still not configured")
	}
	if w := cfg.Watches(); len(w) != 3 || w[0].Name != "a" || w[1].Name != "b" || w[2].Name != "c" {
		t.Errorf("Watches() = %v, want a, b and c in this order", w)
	}
}

// systemd's directories are the defaults under a unit, and a file still wins over them.
func TestEnvironmentDefaults(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"uplink-token", "uplink-cert", "uplink-key", "uplink-proxy"} {
		write(t, dir, "creds/"+name, "x")
	}
	env := map[string]string{
		"STATE_DIRECTORY":       "/var/lib/other:/var/lib/second",
		"RUNTIME_DIRECTORY":     "/run/other",
		"CREDENTIALS_DIRECTORY": filepath.Join(dir, "creds"),
	}
	get := func(k string) string { return env[k] }
	cfg, err := Load(write(t, dir, "f.toml", ""), get)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.StateDir != "/var/lib/other" || cfg.Control.Socket != "/run/other/control.sock" || cfg.Uplink.Credential != dir+"/creds/uplink-token" {
		t.Errorf("got %q, %q, %q", cfg.StateDir, cfg.Control.Socket, cfg.Uplink.Credential)
	}
	if u := cfg.Uplink; u.ClientCert != dir+"/creds/uplink-cert" || u.ClientKey != dir+"/creds/uplink-key" || u.ProxyCredential != dir+"/creds/uplink-proxy" {
		t.Errorf("got %q, %q, %q", u.ClientCert, u.ClientKey, u.ProxyCredential)
	}
	cfg, err = Load(write(t, dir, "h.toml", "uplink.client_cert='/own'\nuplink.client_key='/own-key'\n"), get)
	if err != nil || cfg.Uplink.ClientCert != "/own" || cfg.Uplink.ClientKey != "/own-key" {
		t.Errorf("got %+v, %v", cfg, err)
	}
	cfg, err = Load(write(t, dir, "g.toml", "state_dir='/mine'\nuplink.credential=''\ncontrol.socket='/c'\n"), get)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.StateDir != "/mine" || cfg.Control.Socket != "/c" || cfg.Uplink.Credential != dir+"/creds/uplink-token" {
		t.Errorf("got %q, %q, %q", cfg.StateDir, cfg.Control.Socket, cfg.Uplink.Credential)
	}
	env["CREDENTIALS_DIRECTORY"] = dir // without the file
	cfg, err = Load(write(t, dir, "g.toml", ""), get)
	if err != nil || cfg.Uplink.Credential != "" {
		t.Errorf("credential %q, error %v; want none", cfg.Uplink.Credential, err)
	}
}

// Drop-ins follow systemd's rules: names order them over all directories, the stronger directory's file of a name hides
// the weaker's, a link to /dev/null or an empty file switches a name off, tables merge and arrays are replaced.
func TestDropIns(t *testing.T) {
	dir := t.TempDir()
	main := write(t, dir, "etc/f.toml", "[watch.cam]\npath='/cam'\ninclude=['*.jpg','*.png']\nsettle='3s'\n[uplink]\nworkers=1\n")
	write(t, dir, "etc/conf.d/20-site.toml", "[uplink]\nworkers=2\nidle_timeout='2s'\n[watch.cam]\ninclude=['*.pdf']\n")
	write(t, dir, "etc/conf.d/.hidden.toml", "nonsense")
	write(t, dir, "etc/conf.d/note.txt", "nonsense")
	write(t, dir, "etc/conf.d/60-empty.toml", "")
	write(t, dir, "run/30-mdm.toml", "[uplink]\nworkers=3\n")
	write(t, dir, "usr/10-vendor.toml", "[uplink]\nworkers=9\nidle_timeout='9s'\nanswer_timeout='9s'\n")
	write(t, dir, "usr/20-site.toml", "[control]\ngroup='hidden-by-etc'\n")
	write(t, dir, "usr/40-off.toml", "[uplink]\nworkers=4\n")
	write(t, dir, "usr/50-late.toml", "[watch.scan]\npath='/scan'\n")
	write(t, dir, "usr/60-empty.toml", "[uplink]\nworkers=6\n")
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "run/40-off.toml")); err != nil {
		t.Fatal(err)
	}
	src := Sources{Main: main, DropIns: []string{dir + "/etc/conf.d", dir + "/run", dir + "/missing", dir + "/usr"}}
	cfg, err := src.Load(noEnv)
	if err != nil {
		t.Fatal(err)
	}
	u := cfg.Uplink
	if u.Workers != 3 || u.IdleTimeout.Std() != 2*time.Second || u.AnswerTimeout.Std() != 9*time.Second || cfg.Control.Group != "fieldgw" {
		t.Errorf("workers %d, idle %s, answer %s, group %s; want 3, 2s, 9s, fieldgw", u.Workers, u.IdleTimeout, u.AnswerTimeout, cfg.Control.Group)
	}
	cam := cfg.Watch["cam"]
	if cam.Path != "/cam" || cam.Settle.Std() != 3*time.Second || !reflect.DeepEqual(cam.Include, []string{"*.pdf"}) || len(cfg.Watch) != 2 {
		t.Errorf("cam = %+v of %d watches; want merged keys, a replaced list and the watch scan", cam, len(cfg.Watch))
	}
}

// A problem names the file that set the value, whichever file makes the combination impossible.
func TestProblemsInDropIns(t *testing.T) {
	dir := t.TempDir()
	main := write(t, dir, "f.toml", "\n\n[storage]\nwarn_free='40MiB'\n\n[watch.a]\nsettle='1s'\n")
	write(t, dir, "conf.d/1.toml", "# a comment\nstorage.reserve='50MiB'\n")
	write(t, dir, "conf.d/2.toml", "[watch.a]\n")
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "conf.d/3.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "conf.d/4.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "conf.d/5.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(main, noEnv)
	want := `D/conf.d/3.toml: open: no such file or directory
D/conf.d/4.toml: not a regular file
D/conf.d/5.toml: not a regular file`
	if got := strings.ReplaceAll(err.Error(), dir, "D"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"3", "4", "5"} {
		if err := os.Remove(filepath.Join(dir, "conf.d", name+".toml")); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Load(main, noEnv)
	want = `D/f.toml:6: watch.a.path: a watch needs the path of its directory (path = "/…")
D/conf.d/1.toml:2: storage.reserve: reserve (50MiB) is above warn_free (40MiB) (the warning must come before adoption stops)`
	if got := strings.ReplaceAll(err.Error(), dir, "D"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A missing main file is its own error, unless it is allowed; then the drop-ins still count.
func TestMissingMain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "conf.d/a.toml", "[log]\nlevel='warn'\n")
	path := filepath.Join(dir, "f.toml")
	if cfg, err := Load(path, noEnv); !errors.Is(err, ErrNoConfig) || cfg != nil {
		t.Errorf("Load = %v, %v; want ErrNoConfig", cfg, err)
	}
	src := DefaultSources(path)
	src.AllowMissing = true
	cfg, err := src.Load(noEnv)
	if err != nil || cfg.Log.Level != LogWarn {
		t.Errorf("Load = %v, %v; want the drop-in's level", cfg, err)
	}
	if _, err := Load(dir, noEnv); errors.Is(err, ErrNoConfig) || err == nil {
		t.Errorf("a directory as main file: %v; want a problem", err)
	}
	big := write(t, t.TempDir(), "f.toml", strings.Repeat("#\n", maxFileSize/2)+"#")
	if _, err := Load(big, noEnv); err == nil || !strings.Contains(err.Error(), "larger than 64KiB") {
		t.Errorf("an oversized file: %v", err)
	}
	if _, err := Load("/nonexistent/\x00", noEnv); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an impossible name: %v", err)
	}
}

// The installed gateway's directories are searched for its own file and for no other.
func TestDefaultSources(t *testing.T) {
	want := Sources{Main: DefaultPath, DropIns: []string{"/etc/fieldgw/conf.d", "/run/fieldgw-conf.d", "/usr/lib/fieldgw/conf.d"}}
	if got := DefaultSources(DefaultPath); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := DefaultSources("/tmp/x/a.toml").DropIns; !reflect.DeepEqual(got, []string{"/tmp/x/conf.d"}) {
		t.Errorf("got %v", got)
	}
}

// More problems than a person reads are cut off, and the number of the rest is said.
func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 250 {
		b.WriteString(strings.Repeat("x", i+1) + " = 1\n")
	}
	got := strings.Split(problemsOf(t, b.String()), "\n")
	if len(got) != maxProblems+1 || got[maxProblems] != "f.toml: and 150 more problems" {
		t.Errorf("%d lines, last %q", len(got), got[len(got)-1])
	}
}

// The largest file of each shape that could cost more than its size is refused, not waited for: a run without an answer
// ends in the test's time limit.
func TestCostlyFiles(t *testing.T) {
	for name, text := range map[string]string{
		"arrays":   "x = " + strings.Repeat("[", maxFileSize-10),
		"tables":   "x = " + strings.Repeat("{a=", maxFileSize/3-10),
		"steps":    strings.Repeat("a.", maxFileSize/2-10) + "a = 1",
		"header":   "[" + strings.Repeat("a.", maxFileSize/2-10) + "a]",
		"keys":     manyKeys(maxFileSize - 64),
		"elements": "x = [" + strings.Repeat("1,", maxFileSize/2-10) + "]",
		"lines":    strings.Repeat("\n", maxFileSize-10) + "x",
	} {
		if got := problemsOf(t, text); got == "" || len(got) > 1<<20 {
			t.Errorf("%s: an answer of %d bytes", name, len(got))
		}
	}
}

// manyKeys returns keys that differ, one a line.
func manyKeys(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "k%d=1\n", i)
	}
	return b.String()
}

// Whatever stands in a file, Load answers with a configuration that obeys the rules or with problems that can be
// printed on one line each (and an excerpt), and never panics.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		string(uncommented()), "", "version=2", "[[watch]]\nx=1\n[watch.y]\n", "a.b.c=1", "watch.a={path='/x'}\n[watch.b]\npath='/x/y'",
		"uplink.retry={first='1s-2s'", "x=\"\"\"\n\x1b[31m", "\"a\\nb\"=1\n\"a\\nb\"=2", "[watch.'a b']\npath=1979-05-27", "uplink=[[{a=[1]}]]",
		"credential='fgw1.a.b.c", "a=1\r\n\r\n[b]\r\nc='\xff'",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Load(write(t, dir, "f.toml", string(data)), noEnv)
		if err == nil {
			for name, w := range maps.All(cfg.Watch) {
				if !filepath.IsAbs(w.Path) || w.Name != name {
					t.Errorf("accepted %+v", w)
				}
			}
			if cfg.Storage.Reserve > cfg.Storage.WarnFree || cfg.Version != Version || !filepath.IsAbs(cfg.StateDir) {
				t.Errorf("accepted %+v", cfg)
			}
			return
		}
		var problems *Problems
		if !errors.As(err, &problems) || len(*problems) == 0 {
			t.Fatalf("error %T %v", err, err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range *problems {
			if p.Line < 0 || p.Line > lines || p.Message == "" {
				t.Errorf("problem %+v of a file of %d lines", p, lines)
			}
			head, _, _ := strings.Cut(p.String(), "\n")
			if strings.ContainsFunc(p.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) || !strings.HasPrefix(head, p.File) {
				t.Errorf("unprintable problem %q", p.String())
			}
			if p.Excerpt == "" && strings.Contains(p.String(), "\n") {
				t.Errorf("problem of two lines %q", p.String())
			}
		}
	})
}
