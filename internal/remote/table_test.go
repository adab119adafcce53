package remote

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table in docs/errors.md")

const (
	tablePath  = "../../docs/errors.md"
	tableBegin = "<!-- the rows of internal/remote, rules.go; go test ./internal/remote -run TestTable -update -->\n"
	tableEnd   = "<!-- end of the rows -->\n"
)

// The table in the documentation is the one that decides, row by row.
func TestTableIsDocumented(t *testing.T) {
	data, err := os.ReadFile(tablePath)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(data), tableBegin)
	shown, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the rows", tablePath)
	}
	want := table()
	if *update {
		if err := os.WriteFile(tablePath, []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != want {
		t.Errorf("%s is not what decides; run the command that it names. It should be\n%s", tablePath, want)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| at | seen | class | told as | attempt charged | repeated at once | asked whose |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rules {
		is := r.is
		charged := "no"
		if is.Charge {
			charged = "yes"
		}
		repeats := fmt.Sprint(is.Repeats)
		if is.Shrink {
			repeats = "smaller"
		}
		asked := ""
		if is.Confirm {
			asked = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", words(r.steps, "any step"), r.seen(), words([]Class{is.Class}, ""),
			code(string(is.Reason)), charged, repeats, asked)
	}
	return b.String()
}

func words[T ~string](list []T, none string) string {
	if len(list) == 0 {
		return none
	}
	texts := make([]string, len(list))
	for i, w := range list {
		texts[i] = strings.ReplaceAll(string(w), "_", ", ")
	}
	return strings.Join(texts, " or ")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// seen puts a row's conditions into words.
func (r *rule) seen() string {
	var parts []string
	if len(r.codes) > 0 {
		texts := make([]string, len(r.codes))
		for i, c := range r.codes {
			texts[i] = code(string(c))
		}
		parts = append(parts, "refused: "+strings.Join(texts, ", "))
	}
	if len(r.kinds) > 0 {
		parts = append(parts, words(r.kinds, ""))
	}
	switch {
	case r.to == 0:
	case r.from == r.to:
		parts = append(parts, fmt.Sprint(r.from))
	default:
		parts = append(parts, fmt.Sprintf("%d to %d", r.from, r.to))
	}
	if r.waits {
		parts = append(parts, "with Retry-After")
	}
	if r.smallest {
		parts = append(parts, "cannot be made smaller")
	}
	if len(parts) == 0 {
		return "anything else"
	}
	return strings.Join(parts, ", ")
}
