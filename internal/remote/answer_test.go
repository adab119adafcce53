package remote

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// Retry-After is read in both forms; a date counts from the answer's own, for no clock is trusted.
func TestRetryAfter(t *testing.T) {
	const date = "Tue, 01 Jan 2019 10:00:00 GMT"
	for _, c := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", date, 0}, {"0", "", 0}, {"120", "", 2 * time.Minute}, {" 7 ", "", 7 * time.Second},
		{"99999999999999999999999", "", MaxRetryAfter}, {"86401", "", MaxRetryAfter}, {"-5", "", 0}, {"1.5", "", 0}, {"soon", date, 0},
		{"Tue, 01 Jan 2019 10:00:30 GMT", date, 30 * time.Second},
		{"Tuesday, 01-Jan-19 10:00:30 GMT", date, 30 * time.Second},
		{"Tue, 01 Jan 2019 09:00:00 GMT", date, 0},
		{"Tue, 01 Jan 2029 10:00:00 GMT", date, MaxRetryAfter},
		{"Tue, 01 Jan 2019 10:00:30 GMT", "", 0}, {"Tue, 01 Jan 2019 10:00:30 GMT", "today", 0},
	} {
		h := http.Header{"Retry-After": {c.text}, "Date": {c.date}}
		if got := retryAfter(h); got != c.want {
			t.Errorf("%q at %q: %s, want %s", c.text, c.date, got, c.want)
		}
	}
}

// Whatever answers, it becomes a response of ours or an error with one printable line of bounded length.
func FuzzJudge(f *testing.F) {
	f.Add(200, "1", "application/json", []byte(`{}`), "", "")
	f.Add(409, "1", "application/problem+json; charset=utf-8", []byte(`{"title":"x","status":409,"code":"busy","detail":"a\u0007b"}`), "5", "")
	f.Add(302, "", "text/html", []byte("<html>"), "Tue, 01 Jan 2019 10:00:30 GMT", "http://a\x1b[31m/")
	f.Add(413, "1", "application/problem+json", []byte(`{"code":"size_limit"} {}`), "-1", "//x")
	f.Fuzz(func(t *testing.T, status int, mark, media string, body []byte, retry, location string) {
		resp := &http.Response{StatusCode: status, Header: http.Header{
			wire.HeaderProtocol: {mark}, "Content-Type": {media}, "Retry-After": {retry}, "Location": {location},
		}}
		for _, step := range Steps() {
			got, e := Fieldgw().judge(step, http.MethodGet, resp, body)
			if (got == nil) == (e == nil) {
				t.Fatal("neither or both")
			}
			if mark != "1" && got != nil {
				t.Fatal("an answer without the mark is taken for ours")
			}
			if e == nil {
				var a wire.Attachment
				if err := got.Decode(&a); err != nil && ClassOf(err) == ItemPermanent {
					t.Fatalf("an answer that makes no sense gives up the item: %v", err)
				}
				continue
			}
			line := e.Error()
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(line) || len(line) > 500 {
				t.Fatalf("not a printable line: %q", line)
			}
			if e.RetryAfter < 0 || e.RetryAfter > MaxRetryAfter {
				t.Fatalf("waits %s", e.RetryAfter)
			}
			if e.Class == "" || e.Class == Local {
				t.Fatalf("class %q", e.Class)
			}
		}
	})
}
