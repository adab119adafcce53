package remote

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	concealed = "[credential]"
	// minSecret is the length of a part of a credential that is worth hiding, and unlikely to be an ordinary word.
	minSecret = 12
)

// judge takes an answer apart, and makes sure that a failure does not repeat the credential: a portal may send the request
// back as its answer. It is taken out before the server's words are cut to their length.
func (c *Client) judge(t transfer, resp *http.Response, body []byte, token string) (*Response, *Error) {
	answer, failed := c.protocol.judge(t.step, t.method, resp, body)
	if failed == nil || token == "" {
		return answer, failed
	}
	forms := formsOf(token)
	hidden := *resp
	hidden.Header = resp.Header.Clone()
	for _, values := range hidden.Header {
		for i := range values {
			values[i] = hide(values[i], forms)
		}
	}
	_, failed = c.protocol.judge(t.step, t.method, &hidden, []byte(hide(string(body), forms)))
	return nil, failed
}

// conceal takes the credential out of errors that quote what a server sent.
func (e *Error) conceal(token string) *Error {
	if e == nil || e.Err == nil || token == "" {
		return e
	}
	text := e.Err.Error()
	if shown := hide(text, formsOf(token)); shown != text {
		e.Err = &quoting{text: shown, err: e.Err}
	}
	return e
}

// formsOf are the texts that give a credential away, the longest first.
func formsOf(token string) []string {
	split := func(r rune) bool { return strings.ContainsRune(" .:,;\t\r\n", r) }
	parts := append(strings.FieldsFunc(token, split), token)
	var forms []string
	for _, p := range parts {
		if len(p) < minSecret && p != token {
			continue
		}
		forms = append(forms, p, url.QueryEscape(p), url.PathEscape(p), base64.StdEncoding.EncodeToString([]byte(p)),
			base64.RawURLEncoding.EncodeToString([]byte(p)))
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(forms)
}

// hide replaces the forms whatever their case: the host of an address is shown in small letters.
func hide(text string, forms []string) string {
	for _, f := range forms {
		f = lower(f)
		if f == "" {
			continue
		}
		var shown strings.Builder
		for rest, small := text, lower(text); ; {
			i := strings.Index(small, f)
			if i < 0 {
				shown.WriteString(rest)
				break
			}
			shown.WriteString(rest[:i] + concealed)
			rest, small = rest[i+len(f):], small[i+len(f):]
		}
		text = shown.String()
	}
	return text
}

// lower changes ASCII alone, so that positions stay.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// quoting is an error whose own text gives the credential away.
type quoting struct {
	text string
	err  error
}

// Error is the text without the credential.
func (q *quoting) Error() string { return q.text }

// Is compares with what is below, whose text stays out of reach.
func (q *quoting) Is(target error) bool { return errors.Is(q.err, target) }
