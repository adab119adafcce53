package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// print writes a document as JSON or YAML.
func (a *app) print(document any) error {
	data, err := encode(document)
	if err != nil {
		return err
	}
	if a.output == formatYAML {
		if data, err = toYAML(data); err != nil {
			return err
		}
		_, err = a.env.Stdout.Write(data)
		return err
	}
	_, err = fmt.Fprintf(a.env.Stdout, "%s\n", data)
	return err
}

// encode makes indented JSON that is safe on a terminal.
func encode(document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return asciiJSON(bytes.TrimRight(b.Bytes(), "\n")), nil
}

// asciiJSON writes characters that could act on a terminal, such as a bidirectional override in a file's name, as escapes:
// the value stays the same. Encoders escape only the controls below U+0020.
func asciiJSON(data []byte) []byte {
	if bytes.IndexFunc(data, hidden) < 0 {
		return data
	}
	var out []byte
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case !hidden(r):
			out = append(out, data[:size]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		data = data[size:]
	}
	return out
}

func hidden(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// listPrinter prints a list's rows as they come, as one JSON or YAML document.
type listPrinter struct {
	w      io.Writer
	yaml   bool
	schema string
	rows   int
}

func (p *listPrinter) row(row any) error {
	data, err := encode(row)
	if err != nil {
		return err
	}
	if p.rows == 0 {
		if err := p.begin(); err != nil {
			return err
		}
	}
	p.rows++
	if p.yaml {
		if data, err = toYAML(data); err != nil {
			return err
		}
		data = bytes.TrimRight(data, "\n")
		_, err = fmt.Fprintf(p.w, "  - %s\n", bytes.ReplaceAll(data, []byte("\n"), []byte("\n    ")))
		return err
	}
	between := ",\n    "
	if p.rows == 1 {
		between = "\n    "
	}
	_, err = fmt.Fprintf(p.w, "%s%s", between, bytes.ReplaceAll(data, []byte("\n"), []byte("\n    ")))
	return err
}

func (p *listPrinter) begin() error {
	form := "{\n  \"schema\": \"%s\",\n  \"items\": ["
	if p.yaml {
		form = "schema: %s\nitems:\n"
	}
	_, err := fmt.Fprintf(p.w, form, p.schema)
	return err
}

func (p *listPrinter) end() error {
	text := "\n  ]\n}\n"
	switch {
	case p.rows == 0 && p.yaml:
		text = fmt.Sprintf("schema: %s\nitems: []\n", p.schema)
	case p.rows == 0:
		text = fmt.Sprintf("{\n  \"schema\": \"%s\",\n  \"items\": []\n}\n", p.schema)
	case p.yaml:
		return nil
	}
	_, err := io.WriteString(p.w, text)
	return err
}
