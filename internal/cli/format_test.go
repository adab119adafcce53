package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Sizes are short and never rounded to four digits; exact ones keep every byte.
func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 1000: "1.0 kB", 1049: "1.0 kB", 9_949: "9.9 kB", 9_950: "10 kB", 12_345: "12 kB",
		999_499: "999 kB", 999_500: "1.0 MB", 6_200_000_000: "6.2 GB", 1 << 62: "4.6 EB",
	} {
		if got := siBytes(n); got != want {
			t.Errorf("siBytes(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 999: "999 bytes", 1_234_567: "1,234,567 bytes (1.2 MB)"} {
		if got := exactBytes(n); got != want {
			t.Errorf("exactBytes(%d) = %q, want %q", n, got, want)
		}
	}
	if got := grouped(-123456); got != "-123,456" {
		t.Error(got)
	}
	for _, c := range []struct {
		done *int64
		of   int64
		want string
	}{{nil, 5, "-"}, {ptr(int64(0)), 5, "0 B (0%)"}, {ptr(int64(999_999)), 1_000_000, "1.0 MB (99%)"}, {ptr(int64(5)), 5, "5 B (100%)"},
		{ptr(int64(0)), 0, "0 B"}, {ptr(int64(7)), 5, "7 B"}} {
		if got := confirmed(c.done, c.of); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Ages have two units, times only the date that is needed, in the local zone.
func TestTimes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 45 * time.Second: "45s", 12*time.Minute + 59*time.Second: "12m", 123 * time.Minute: "2h03m", 24 * time.Hour: "1d",
		76 * time.Hour: "3d4h", 500 * time.Hour: "20d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	a := &app{env: Env{Now: clock, Local: east}}
	for at, want := range map[time.Time]string{
		ago(time.Hour): "10:17", ago(12 * time.Hour): "Nov 29 23:17", clock().AddDate(-1, 0, 0): "2024-11-30 11:17", ago(11*time.Hour + 10*time.Minute): "00:07",
	} {
		if got := a.clock(at); got != want {
			t.Errorf("clock(%v) = %q, want %q", at, got, want)
		}
	}
}

// Durations are read with days too and written as they are read.
func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "3d": 72 * time.Hour, "1h30m": 90 * time.Minute, "0s": 0} {
		var d duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{"", "soon", "-1h", "d", "1.5d", "99999d"} {
		if err := new(duration).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for d, want := range map[duration]string{0: "", duration(90 * time.Second): "1m30s", duration(10 * time.Minute): "10m", duration(2 * time.Hour): "2h", duration(time.Millisecond): "1ms"} {
		if got := d.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Columns are aligned by width on the screen also when a later block is wider, and colour changes no position.
func TestTable(t *testing.T) {
	columns := []column{{title: "NAME", limit: 8}, {title: "SIZE", right: true}, {title: "WHY"}}
	print := func(color bool) string {
		var b bytes.Buffer
		table := &table{columns: columns, color: color}
		for _, block := range [][][]cell{
			{{{"点検", bad}, {"5 B", plain}, {"x", plain}}},
			{{{"very long name", plain}, {"1,000 kB", good}, {"", plain}}, {{"é", plain}, {"7 B", plain}, {"last", waits}}},
		} {
			if err := table.print(&b, block); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	want := "NAME  SIZE  WHY\n点検   5 B  x\nvery lo…  1,000 kB  \né              7 B  last\n"
	if got := print(false); got != want {
		t.Errorf("got\n%s", got)
	}
	colored := print(true)
	if !strings.Contains(colored, "\x1b[1;31m点検\x1b[0m") {
		t.Errorf("no colour in %q", colored)
	}
	for _, s := range []style{strong, good, waits, bad, working} {
		colored = strings.ReplaceAll(colored, "\x1b["+string(s)+"m", "")
	}
	if colored = strings.ReplaceAll(colored, "\x1b[0m", ""); colored != want {
		t.Errorf("colour moves columns:\n%s", colored)
	}
}

// Colour appears only on a terminal, not when it is refused in any of the usual ways, and the text is the same without it.
func TestColour(t *testing.T) {
	g := newGateway(t)
	g.Add(waiting(file(1, "1.jpg", 1, attachment.Attention, time.Minute), attachment.NeedsMediaType))
	plainText := g.run(t, "list").out
	if strings.Contains(plainText, "\x1b") {
		t.Error("colour without a terminal")
	}
	g.tty = true
	for _, c := range []struct {
		env, value string
		args       []string
		color      bool
	}{
		{color: true}, {env: "NO_COLOR", value: "1"}, {env: "TERM", value: "dumb"}, {args: []string{"--no-color"}},
		{env: "NO_COLOR", value: "", color: true}, {args: []string{"-o", "json"}},
	} {
		g.env = map[string]string{c.env: c.value}
		got := g.run(t, append([]string{"list"}, c.args...)...).out
		if strings.Contains(got, "\x1b[1;31m! needs-attention\x1b[0m") != c.color || strings.Contains(got, "\x1b") != c.color {
			t.Errorf("%+v: %q", c, got)
		}
		if len(c.args) == 0 && !c.color && got != plainText {
			t.Errorf("%+v: the text differs: %q", c, got)
		}
	}
}

// YAML says the same as JSON, whatever the strings are, in printable characters only.
func TestYAMLEqualsJSON(t *testing.T) {
	checkYAML(t, `{"a":"","b":[],"c":{},"d":null,"e":true,"f":-1.5e300,"g":[[1,[2]],{"x":[{"y":1}]},[]],"h i":{"j":"true","k":"~","l":"no","m":"1e5","n":"- x"}}`)
	checkYAML(t, `["\u202e","\ud83d\ude00\udb40\udc01","a: b","# c","line\nbreak","\u0000","\u007f\u0085\ufeff","'","\"","\\ud83d\\ude00","null","y"," x"]`)
	checkYAML(t, `"text"`)
	checkYAML(t, `12345678901234567890`)
}

// As above, for any key and value.
func FuzzYAML(f *testing.F) {
	f.Add("plain", "with: colon\n\u202e")
	f.Add("\\ud83d\U000e0001", "0x1f")
	f.Fuzz(func(t *testing.T, key, value string) {
		document, err := json.Marshal(map[string]any{key: value, "list": []string{value, key}})
		if err != nil {
			t.Fatal(err)
		}
		checkYAML(t, string(document))
	})
}

func checkYAML(t *testing.T, document string) {
	t.Helper()
	text, err := toYAML([]byte(document))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	if bytes.ContainsFunc(text, hidden) {
		t.Errorf("not printable: %q", text)
	}
	var want, got any
	if err := json.Unmarshal([]byte(document), &want); err != nil {
		t.Fatal(err)
	}
	back, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = json.Unmarshal(back, &got)
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s became\n%s\nwhich is %v, %v", document, text, got, err)
	}
}
