package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// A rule limits the imports of some packages. Names are import paths, those of this module without its prefix; "p/..."
// is p and everything below it, "..." is the whole module. Tests are free, and so are packages below test/ and
// packages named …test, which only tests may import.
type rule struct {
	from     []string // whom it binds
	except   []string // of those, not these
	not      []string // never import these
	reach    []string // never these, not even through others
	only     []string // of this module nothing but these; nil sets no limit
	together []string // at most one of these
	why      string
}

// laterPackages are named by the rules and not written yet. One that exists fails the test until it is removed here.
var laterPackages = []string{
	"internal/power", "internal/media", "internal/records", "internal/library",
	"internal/server/pg", "internal/server/preview",
}

var (
	pure       = []string{"internal/attachment", "internal/wire", "internal/receipt", "internal/policy", "internal/sidecar", "internal/spelling"}
	foundation = []string{"internal/buildinfo", "internal/clock", "internal/config", "internal/durable", "internal/logging"}
	sensors    = []string{"internal/power", "internal/disk", "internal/link"}
	senders    = []string{"internal/uplink", "internal/records", "internal/library"}
	mechanisms = slices.Concat([]string{"internal/spool", "internal/queue", "internal/watch", "internal/media", "internal/remote"}, sensors, senders)
	parts      = slices.Concat(slices.DeleteFunc(slices.Clone(mechanisms), func(m string) bool { return m == "internal/remote" }), []string{"internal/intake"})
	deviceSide = slices.Concat(slices.DeleteFunc(slices.Clone(parts), func(m string) bool { return m == "internal/media" }),
		[]string{"internal/remote", "internal/control/...", "internal/cli", "internal/daemon"})
)

// below names what a mechanism may use although it is a mechanism too, or touches the disk.
var below = map[string][]string{
	"internal/spool":   {"internal/durable"},
	"internal/watch":   {"internal/durable"},
	"internal/queue":   {"internal/store"},
	"internal/uplink":  {"internal/remote"},
	"internal/records": {"internal/remote", "internal/store"},
	"internal/library": {"internal/remote", "internal/store"},
}

const stays = "test support stays out of the programs"

// layers is the table of rules: what "imports go downwards only" means, package by package.
func layers() []rule {
	rules := []rule{
		{from: []string{"internal/attachment", "internal/receipt"}, only: []string{},
			why: "the two roots of the domain know nobody"},
		{from: pure, only: []string{"internal/attachment", "internal/receipt", "internal/spelling"},
			not: []string{"os", "os/exec", "io/fs", "path/filepath", "net", "net/http", "syscall", "golang.org/x/sys/unix"},
			why: "pure packages decide from their arguments alone, so that device, server and tests get the same answer"},
		{from: foundation, only: slices.Concat(pure, foundation),
			why: "everybody stands on these, so they stand on each other at most"},
		{from: []string{"internal/store"}, only: slices.Concat(pure, foundation),
			why: "the database file does not know what is kept in it; device and server use it"},
		{from: []string{"internal/intake"},
			only: slices.Concat(pure, []string{"internal/spool", "internal/queue", "internal/durable", "internal/store", "internal/clock", "internal/logging"}),
			why:  "adoption is spool and queue in one order; who watches, validates and sends is passed in"},
		{from: []string{"internal/policy"}, reach: sensors,
			why: "policy judges readings; where they come from is the daemon's matter"},
		{from: []string{"internal/uplink"}, reach: []string{"internal/queue"},
			why: "transport reports outcomes through Gate and Commit; only the daemon records them"},
		{from: []string{"internal/queue"}, reach: []string{"net/http", "internal/spool", "internal/uplink"},
			why: "a transaction never waits for the network or for payload files"},
		{from: []string{"internal/cli/...", "cmd/fieldgwctl"},
			reach: []string{"go.etcd.io/bbolt", "github.com/fsnotify/fsnotify", "internal/store", "internal/queue", "internal/daemon", "internal/server/..."},
			why:   "the CLI asks the daemon and never opens the database: it would wait for the lock"},
		{from: []string{"internal/control"}, only: pure, not: []string{"os", "net", "net/http"},
			why: "the root of control holds the types that both ends share, and nothing that runs"},
		{from: []string{"internal/control/client/..."}, reach: []string{"internal/control/server/...", "internal/queue", "internal/daemon"},
			why: "a client knows the messages, not who answers them"},
		{from: []string{"internal/server/..."}, reach: deviceSide,
			only: slices.Concat(foundation, []string{"internal/wire", "internal/receipt", "internal/store", "internal/media"}),
			why:  "the receiving server shares the contract with the device, never its workings"},
		{from: []string{"cmd/fieldgw-server"}, reach: deviceSide,
			why: "the server's program has no device side"},
		{from: []string{"..."}, except: []string{"internal/server/...", "cmd/fieldgw-server"}, not: []string{"internal/server/..."},
			why: "the device side knows the server by its protocol only"},
		{from: []string{"..."}, except: []string{"cmd/fieldgwd"}, not: []string{"internal/daemon"},
			why: "the daemon is the top: only its program starts it"},
		{from: []string{"..."}, except: []string{"internal/daemon/...", "internal/intake", "cmd/fieldgwd"}, together: parts,
			why: "parts meet in the daemon and nowhere else"},
		{from: []string{"..."}, not: []string{"testing/...", "net/http/httptest", "internal/tidy"},
			why: stays},
	}
	for _, m := range mechanisms {
		others := slices.DeleteFunc(slices.Concat(mechanisms, []string{"internal/durable", "internal/store"}), func(o string) bool {
			return o == m || slices.Contains(below[m], o)
		})
		rules = append(rules, rule{from: []string{m + "/..."}, not: others,
			why: "mechanisms do not know each other, and touch the disk only where that is their work; the daemon composes them"})
	}
	return rules
}

// graph maps an import path to what it imports, tests left out.
type graph map[string][]string

// within reports whether p is what pattern names.
func within(p, pattern string) bool {
	tree, ok := strings.CutSuffix(pattern, "...")
	return p == strings.TrimSuffix(tree, "/") || ok && (tree == "" || strings.HasPrefix(p, tree))
}

func in(p string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return within(p, pattern) })
}

// ours reports whether p belongs to the module. The standard library has an internal tree too, kept apart by load.
func ours(p string) bool {
	return slices.Contains([]string{"internal", "cmd", "test"}, strings.SplitN(p, "/", 2)[0])
}

func support(p string) bool {
	return within(p, "test/...") || ours(p) && strings.HasSuffix(path.Base(p), "test")
}

// check returns what breaks the rules in g, and the names in rules and later that g belies.
func check(g graph, rules []rule, later []string) []string {
	packages := slices.DeleteFunc(slices.Sorted(maps.Keys(g)), func(p string) bool { return !ours(p) || support(p) })
	broken := checkNames(g, packages, rules, later)
	for _, p := range packages {
		for _, imported := range g[p] {
			if support(imported) {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", p, imported, stays))
			}
		}
		for _, r := range rules {
			i := slices.IndexFunc(r.from, func(pattern string) bool { return within(p, pattern) })
			if i < 0 || in(p, r.except) {
				continue
			}
			for _, breach := range r.breaches(g, p, r.from[i]) {
				broken = append(broken, p+" "+breach+": "+r.why)
			}
		}
	}
	return broken
}

// breaches says how p breaks r. What lies below p's own pattern is p's own.
func (r rule) breaches(g graph, p, own string) []string {
	var found, met []string
	for _, imported := range g[p] {
		switch {
		case own != "..." && within(imported, own):
		case in(imported, r.not), r.only != nil && ours(imported) && !in(imported, r.only):
			found = append(found, "imports "+imported)
		case in(imported, r.together):
			met = append(met, imported)
		}
	}
	if len(met) > 1 {
		found = append(found, "imports "+strings.Join(met, " and "))
	}
	for _, target := range r.reach {
		if chain := g.chain(p, target); chain != nil {
			found = append(found, "reaches "+strings.Join(chain[1:], " through "))
		}
	}
	return found
}

// chain is the shortest path of imports from p to what target names, or nil.
func (g graph) chain(p, target string) []string {
	from := map[string]string{p: ""}
	for queue := []string{p}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != p && within(at, target) {
			var chain []string
			for ; at != ""; at = from[at] {
				chain = append([]string{at}, chain...)
			}
			return chain
		}
		for _, next := range g[at] {
			if _, seen := from[next]; !seen {
				from[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// checkNames compares the names in the rules with the packages that exist, both ways.
func checkNames(g graph, packages []string, rules []rule, later []string) []string {
	var broken []string
	named := map[string]bool{}
	for _, r := range rules {
		for _, name := range slices.Concat(r.from, r.except, r.not, r.reach, r.only, r.together) {
			named[strings.TrimSuffix(name, "/...")] = true
		}
	}
	delete(named, "...")
	for _, name := range slices.Sorted(maps.Keys(named)) {
		standard := !ours(name) && !strings.Contains(name, ".")
		exists := slices.ContainsFunc(slices.Collect(maps.Keys(g)), func(p string) bool { return within(p, name+"/...") })
		if !standard && !exists && !slices.Contains(later, name) {
			broken = append(broken, name+" is named by a rule and does not exist")
		}
	}
	for _, p := range packages {
		if slices.Contains(later, p) {
			broken = append(broken, p+" exists: remove it from laterPackages")
		}
		hasLayer := slices.ContainsFunc(slices.Collect(maps.Keys(named)), func(name string) bool { return within(p, name+"/...") })
		if within(p, "internal/...") && !hasLayer {
			broken = append(broken, p+" has no layer: add it to the rules")
		}
	}
	return broken
}

// load asks the go command for the module's packages and everything they import.
func load() (graph, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("go list: %w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, err
	}
	short := func(p string) string {
		if rel, ok := strings.CutPrefix(p, module+"/"); ok {
			return rel
		}
		if ours(p) {
			return "std/" + p
		}
		return p
	}
	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, err
		}
		for i := range p.Imports {
			p.Imports[i] = short(p.Imports[i])
		}
		g[short(p.ImportPath)] = p.Imports
	}
}

// The module's imports go downwards only.
func TestLayers(t *testing.T) {
	g, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range check(g, layers(), laterPackages) {
		t.Error(broken)
	}
}
