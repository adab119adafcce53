package tidy

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// sound is a small module in the shape of the rules: nothing in it may be found fault with.
var sound = graph{
	"internal/attachment":          {"fmt", "path"},
	"internal/wire":                {"net/url"},
	"internal/receipt":             {"time"},
	"internal/policy":              {"time"},
	"internal/spelling":            {"strings"},
	"internal/sidecar":             {"internal/attachment", "internal/spelling"},
	"internal/buildinfo":           {"runtime/debug"},
	"internal/clock":               {"os", "internal/durable"},
	"internal/config":              {"os", "internal/policy"},
	"internal/durable":             {"os", "golang.org/x/sys/unix"},
	"internal/logging":             {"log/slog"},
	"internal/store":               {"go.etcd.io/bbolt", "internal/durable", "internal/clock"},
	"internal/queue":               {"internal/store", "internal/attachment", "internal/logging"},
	"internal/spool":               {"internal/durable", "internal/attachment"},
	"internal/watch":               {"github.com/fsnotify/fsnotify", "internal/durable"},
	"internal/disk":                {"internal/policy"},
	"internal/link":                {"golang.org/x/sys/unix", "internal/logging"},
	"internal/remote":              {"net/http", "internal/wire"},
	"internal/uplink":              {"internal/remote", "internal/wire", "internal/receipt"},
	"internal/intake":              {"internal/queue", "internal/spool", "internal/durable", "internal/attachment", "internal/clock"},
	"internal/control":             {"time", "internal/attachment"},
	"internal/control/client":      {"net/http", "internal/control"},
	"internal/control/server":      {"net/http", "internal/control", "internal/logging"},
	"internal/cli":                 {"internal/control", "internal/control/client"},
	"internal/daemon":              {"internal/queue", "internal/spool", "internal/watch", "internal/intake", "internal/uplink", "internal/control/server"},
	"internal/server":              {"net/http", "internal/wire", "internal/server/store", "internal/server/upload"},
	"internal/server/store":        {"internal/store", "internal/receipt"},
	"internal/server/upload":       {"internal/durable", "internal/server/store"},
	"internal/queue/queuetest":     {"testing", "internal/queue", "internal/spool"},
	"internal/tidy":                {},
	"cmd/fieldgwd":                 {"internal/daemon", "internal/config", "internal/queue", "internal/spool"},
	"cmd/fieldgwctl":               {"internal/cli", "internal/buildinfo"},
	"cmd/fieldgw-server":           {"internal/server", "internal/config"},
	"test/sim":                     {"testing", "internal/daemon", "internal/server"},
	"go.etcd.io/bbolt":             {"os"},
	"github.com/fsnotify/fsnotify": {"os"},
	"golang.org/x/sys/unix":        {"syscall"},
}

// The rules accept the sound module, and each import of the table added to it is found, once by the rule that it breaks.
func TestLayerRules(t *testing.T) {
	if broken := check(sound, layers(), laterPackages); len(broken) > 0 {
		t.Fatalf("the sound module is refused:\n%s", strings.Join(broken, "\n"))
	}
	tests := []struct{ from, imports, want string }{
		{"internal/wire", "internal/durable", "imports internal/durable: pure"},
		{"internal/receipt", "internal/attachment", "imports internal/attachment: the two roots"},
		{"internal/wire", "net/http", "imports net/http: pure"},
		{"internal/attachment", "os", "imports os: pure"},
		{"internal/receipt", "path/filepath", "imports path/filepath: pure"},
		{"internal/policy", "internal/disk", "reaches internal/disk: policy"},
		{"internal/clock", "internal/disk", "imports internal/disk: everybody"},
		{"internal/durable", "internal/store", "imports internal/store: everybody"},
		{"internal/store", "internal/queue", "imports internal/queue: the database"},
		{"internal/spool", "internal/queue", "imports internal/queue: mechanisms"},
		{"internal/queue", "internal/durable", "imports internal/durable: mechanisms"},
		{"internal/uplink", "internal/store", "imports internal/store: mechanisms"},
		{"internal/uplink", "internal/disk", "imports internal/disk: mechanisms"},
		{"internal/uplink/tus", "internal/spool", "imports internal/spool: mechanisms"},
		{"internal/remote", "internal/queue", "reaches internal/remote through internal/queue: transport"},
		{"internal/queue", "net/http", "reaches net/http: a transaction"},
		{"internal/logging", "net/http", "reaches internal/logging through net/http: a transaction"},
		{"internal/intake", "internal/watch", "imports internal/watch: adoption"},
		{"internal/intake", "internal/config", "imports internal/config: adoption"},
		{"internal/cli", "internal/store", "reaches internal/store through go.etcd.io/bbolt: the CLI"},
		{"internal/control/client", "internal/queue", "cmd/fieldgwctl reaches internal/cli through internal/control/client through internal/queue: the CLI"},
		{"internal/cli", "internal/server/upload", "imports internal/server/upload: the device side"},
		{"internal/control", "net/http", "imports net/http: the root"},
		{"internal/control", "internal/clock", "imports internal/clock: the root"},
		{"internal/control/client", "internal/control/server", "reaches internal/control/server: a client"},
		{"internal/server", "internal/attachment", "imports internal/attachment: the receiving"},
		{"internal/server/upload", "internal/spool", "reaches internal/spool: the receiving"},
		{"cmd/fieldgw-server", "internal/control/client", "reaches internal/control/client: the server's program"},
		{"cmd/fieldgwd", "internal/server", "imports internal/server: the device side"},
		{"internal/cli", "internal/daemon", "imports internal/daemon: the daemon is"},
		{"internal/control/server", "internal/queue internal/spool", "imports internal/queue and internal/spool: parts"},
		{"cmd/fieldgwctl", "testing", "imports testing: test support"},
		{"internal/daemon", "testing/fstest", "imports testing/fstest: test support"},
		{"internal/daemon", "internal/queue/queuetest", "imports internal/queue/queuetest: test support"},
		{"internal/daemon", "test/sim", "imports test/sim: test support"},
		{"internal/util", "", "internal/util has no layer"},
		{"internal/power", "", "internal/power exists: remove"},
	}
	for _, tt := range tests {
		g := maps.Clone(sound)
		g[tt.from] = slices.Concat(g[tt.from], strings.Fields(tt.imports))
		matching := slices.DeleteFunc(check(g, layers(), laterPackages), func(s string) bool { return !strings.Contains(s, tt.want) })
		if len(matching) != 1 {
			t.Errorf("%s imports %s: found %q among %q, want one", tt.from, tt.imports, tt.want, check(g, layers(), laterPackages))
		}
	}
}

// A package that a rule names must exist, unless it is announced for later.
func TestLayerNames(t *testing.T) {
	g := maps.Clone(sound)
	delete(g, "internal/uplink")
	delete(g, "github.com/fsnotify/fsnotify")
	for _, want := range []string{"internal/uplink is named by a rule and does not exist", "github.com/fsnotify/fsnotify is named"} {
		found := strings.Join(check(g, layers(), laterPackages), "\n")
		if strings.Count(found, want) != 1 {
			t.Errorf("found %q, want %q once", found, want)
		}
	}
	found := strings.Join(check(g, layers(), append([]string{"internal/uplink"}, laterPackages...)), "\n")
	if strings.Contains(found, "internal/uplink") {
		t.Errorf("a package announced for later is missed: %s", found)
	}
}
