package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// toYAML turns a JSON document into block YAML (1.2, readable as 1.1) with the members in the same order. It is written
// here because the usual encoders put characters that act on a terminal into the text as they are.
func toYAML(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	y := yamlWriter{from: d}
	if err := y.value(""); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return append(bytes.TrimLeft(y.out.Bytes(), "\n "), '\n'), nil
}

type yamlWriter struct {
	from *json.Decoder
	out  bytes.Buffer
}

// value writes the next value behind a key or a dash; what needs lines of its own gets them at indent.
func (y *yamlWriter) value(indent string) error {
	token, err := y.from.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return y.object(indent)
		}
		return y.list(indent)
	case string:
		y.out.WriteString(" " + yamlString(t))
	case nil:
		y.out.WriteString(" null")
	default:
		fmt.Fprintf(&y.out, " %v", t)
	}
	return nil
}

func (y *yamlWriter) object(indent string) error {
	empty := true
	for ; y.from.More(); empty = false {
		key, err := y.from.Token()
		if err != nil {
			return err
		}
		fmt.Fprintf(&y.out, "\n%s%s:", indent, yamlString(fmt.Sprint(key)))
		if err := y.value(indent + "  "); err != nil {
			return err
		}
	}
	return y.close(empty, " {}")
}

func (y *yamlWriter) list(indent string) error {
	empty := true
	for ; y.from.More(); empty = false {
		at := y.out.Len()
		if err := y.value(indent + "  "); err != nil {
			return err
		}
		// A value's first line moves up behind its dash.
		value := strings.TrimLeft(y.out.String()[at:], "\n ")
		y.out.Truncate(at)
		fmt.Fprintf(&y.out, "\n%s- %s", indent, value)
	}
	return y.close(empty, " []")
}

func (y *yamlWriter) close(empty bool, form string) error {
	if empty {
		y.out.WriteString(form)
	}
	_, err := y.from.Token()
	return err
}

var (
	plainYAML = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)
	wordsYAML = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// yamlString writes a string plainly where no reader can take it for something else.
func yamlString(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains(wordsYAML, strings.ToLower(s)) {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return fmt.Sprintf("%q", s) // a string always encodes
	}
	return joinSurrogates(string(asciiJSON(bytes.TrimRight(b.Bytes(), "\n"))))
}

var surrogates = regexp.MustCompile(`\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})`)

// joinSurrogates writes JSON's pairs of escapes as YAML's single one.
func joinSurrogates(s string) string {
	return surrogates.ReplaceAllStringFunc(s, func(pair string) string {
		var high, low rune
		if _, err := fmt.Sscanf(pair, `\u%04x\u%04x`, &high, &low); err != nil {
			return pair // the pattern above matches what is scanned
		}
		return fmt.Sprintf(`\U%08x`, utf16.DecodeRune(high, low))
	})
}
