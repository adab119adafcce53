package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// What is wrong with a command line is said in one sentence of our own, and the hint names the help of that command.
func TestUsage(t *testing.T) {
	g := newGateway(t)
	dir := t.TempDir()
	for line, want := range map[string][2]string{
		"frobnicate":                      {`there is no command "frobnicate"`, ""},
		"-o json frobnicate --all":        {"", ""},
		"--socket s frobnicate --all":     {`there is no command "frobnicate"`, ""},
		"lits":                            {`there is no command "lits"; did you mean list?`, ""},
		"list now":                        {`list takes no arguments, but there is "now"`, " list"},
		"status x":                        {`status takes no arguments, but there is "x"`, " status"},
		"show":                            {"show takes one ID", " show"},
		"show a b":                        {"show takes one ID", " show"},
		"records a b":                     {"records takes the ID of one record, or nothing", " records"},
		"list --frobnicate":               {"list has no flag --frobnicate", " list"},
		"list -x":                         {"list has no flag -x", " list"},
		"--frobnicate":                    {"fieldgwctl has no flag --frobnicate", ""},
		"list --parent":                   {"--parent needs a value", " list"},
		"list -o":                         {"-o needs a value", " list"},
		"list -o xml":                     {`--output cannot be "xml": want table, wide, json, yaml`, " list"},
		"list --older-than soon":          {`--older-than cannot be "soon": want a duration such as 90s, 15m, 2h or 3d`, " list"},
		"status --check=maybe":            {`--check cannot be "maybe": it is a switch and takes no value`, " status"},
		"list --not-taken --parent R":     {"give --not-taken or --parent, not both", " list"},
		"retry --all --record R":          {"give --all or --record, not both", " retry"},
		"pause --record R 0197":           {"give --record or IDs, not both", " pause"},
		"wait --all 0197":                 {"give --all or IDs, not both", " wait"},
		"retry":                           {"retry what? Give IDs, --all or --record", " retry"},
		"wait":                            {"wait for what? Give IDs, --all or --record", " wait"},
		"submit --record R":               {"submit takes the files to hand over", " submit"},
		"submit --record R " + dir:        {dir + " is a directory; name the files in it", " submit"},
		"submit --record R /dev/null":     {"/dev/null is not a regular file", " submit"},
		"submit --record R " + dir + "/x": {"there is no file " + dir + "/x", " submit"},
		"completion tcsh":                 {`there is no completion for "tcsh", but for bash, fish, powershell, zsh`, " completion"},
		"completion bash now":             {`bash takes no arguments, but there is "now"`, " completion bash"},
		"help lits":                       {`there is no command "lits"; did you mean list?`, " help"},
		"help list now":                   {`there is no help for "list now"`, " help"},
	} {
		r := g.run(t, strings.Fields(line)...)
		text := "fieldgwctl: Usage: " + attachment.Printable(want[0]) + "\n  See: fieldgwctl" + want[1] + " --help\n"
		if want[0] == "" { // in JSON
			text = `"code": "usage"`
		}
		if r.code != exitUsage || r.out != "" || r.err != text && (want[0] != "" || !strings.Contains(r.err, text)) {
			t.Errorf("%s: exit %d, %s%s want %s", line, r.code, r.out, r.err, text)
		}
	}
}

// Help explains the words that flags take; it and the version need no daemon.
func TestHelp(t *testing.T) {
	g := newGateway(t)
	g.stop()
	for line, words := range map[string][]string{
		"list --help": conditions(), "wait --help": conditions(), "help wait": {"--timeout"}, "records --help": {"local ID", "submit --record"},
		"show --help": {"history"}, "completion": {"bash"}, "help completion bash": {"bash"}, "help": {"status"}, "": {"status"},
		"--version": {"fieldgwctl  0.4.0\n"},
	} {
		r := g.run(t, strings.Fields(line)...)
		if r.code != exitDone || r.err != "" {
			t.Errorf("%s: %+v", line, r)
		}
		for _, word := range words {
			if !strings.Contains(r.out, word) {
				t.Errorf("%s does not name %s:\n%s", line, word, r.out)
			}
		}
	}
	for _, c := range attachment.Conditions() {
		if meanings[c] == "" {
			t.Errorf("%s is not explained", c)
		}
	}
}

// Completion offers the files that a verb is for, by the ID that lists show or by the whole one, and records; without a
// daemon it offers nothing and says nothing.
func TestCompletion(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "a\tb.jpg", 1, attachment.Ready, time.Minute))
	paused := file(2, "2.jpg", 1, attachment.Ready, time.Minute)
	paused.Manifest.Paused = true
	paused.Manifest.Parent.LocalID = attachment.NameOf("INS-\x1b")
	g.Add(paused)
	g.Add(delivered(file(3, "3.jpg", 1, attachment.Reconciled, time.Hour), time.Minute))
	one, two, three := short(1)+"\ta\\tb.jpg, waiting\n", short(2)+"\t2.jpg, paused\n", short(3)+"\t3.jpg, delivered\n"
	for line, want := range map[string]string{
		"show ":                   one + two + three,
		"show " + short(1):        one,
		"show 0197f3a2-4c1d":      strings.NewReplacer(short(1), string(fixedID(1)), short(2), string(fixedID(2)), short(3), string(fixedID(3))).Replace(one + two + three),
		"show ffff":               "",
		"show x ":                 "",
		"retry ":                  one,
		"pause ":                  one,
		"resume ":                 two,
		"wait ":                   one + two,
		"wait " + short(2) + " ":  one,
		"records ":                "INS-117\n",
		"records INS-117 ":        "",
		"retry --record ":         "INS-117\n",
		"list --parent INS-2":     "",
		"submit --record I":       "INS-117\n",
		"help ver":                "version\tPrint the versions of this program and of the daemon\n",
		"--socket /nowhere show ": "",
	} {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		r := g.run(t, args...)
		got, _, _ := strings.Cut(r.out, ":")
		if line == "help ver" { // the shell selects
			got = got[strings.Index(got, "version\t"):]
			got, _, _ = strings.Cut(got, "\n")
			got += "\n"
		}
		if got != want || r.code != exitDone {
			t.Errorf("%s: %q, want %q (%+v)", line, got, want, r)
		}
	}
	g.stop()
	if r := g.run(t, "__complete", "show", ""); r.code != exitDone || !strings.HasPrefix(r.out, ":") {
		t.Errorf("without a daemon: %+v", r)
	}
}
