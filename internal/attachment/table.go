package attachment

import "strings"

// Table draws the State × Event table as Markdown: a row per event, a column per state, an empty cell where the event is
// refused, "=" where it moves nothing, "back" where the state is computed anew from the durable facts.
func Table() string {
	var b strings.Builder
	b.WriteString("| event |")
	for _, s := range States() {
		b.WriteString(" " + string(s.orAbsent()) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(States())) + "\n")
	for _, e := range Events() {
		b.WriteString("| `" + string(e) + "` |")
		for _, s := range States() {
			b.WriteString(" " + cell(e, s) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cell(e Event, s State) string {
	to, ok := transitions[e][s]
	switch {
	case !ok:
		return ""
	case to == same, to == s:
		return "="
	}
	return string(to)
}
