package wire

import (
	"bytes"
	"errors"
	"testing"
)

// Numbers and truth values are read as RFC 9651 has them; anything else is as if it were not there.
func TestItems(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "42": 42, " 7 ": 7, "7;a=b": 7, "007": 7, "-0": 0, "999999999999999": 999999999999999,
		"": -1, "-1": -1, "+1": -1, "1.0": -1, "1e3": -1, "1000000000000000": -1, "\"1\"": -1, "1, 1": -1, "?1": -1, "1;": -1, ":AA==:": -1, "1\t": -1,
	} {
		got, ok := ParseInteger([]string{text})
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is %d, %v", text, got, ok)
		}
	}
	for text, want := range map[string]string{
		"?1": "?1", "?0": "?0", " ?0": "?0", "?1;x": "?1", "": "", "?2": "", "1": "", "true": "", "?": "", "?1, ?1": "", "?1?1": "",
	} {
		got, ok := ParseBoolean([]string{text})
		if ok != (want != "") || ok && FormatBoolean(got) != want {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
	if _, ok := ParseInteger(nil); ok {
		t.Error("no header is a number")
	}
	if _, ok := ParseBoolean([]string{"?1", "?1"}); ok {
		t.Error("two headers are one value")
	}
}

// Digests come in one or several headers, each under its algorithm; what is malformed is said to be so.
func TestDigests(t *testing.T) {
	got, err := ParseDigests([]string{"sha-256=:AAEC:;q=1", "md5=::"})
	if err != nil || len(got) != 2 || !bytes.Equal(got["sha-256"], []byte{0, 1, 2}) || len(got["md5"]) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if text := FormatDigest("sha-256", []byte{0, 1, 2}); text != "sha-256=:AAEC:" {
		t.Errorf("written as %s", text)
	}
	if got, err := ParseDigests(nil); got != nil || err != nil {
		t.Errorf("no header: %v, %v", got, err)
	}
	for _, bad := range []string{"sha-256", "sha-256=AAEC", "sha-256=:AA\nEC:", "sha-256=:!:", "sha-256=(:AAEC:)", "sha-256=1", "SHA-256=:AAEC:", "a=:AA==:,"} {
		if got, err := ParseDigests([]string{bad}); !errors.Is(err, ErrField) {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
	wants, err := ParseWants([]string{"sha-256=10, sha=0"})
	if err != nil || wants["sha-256"] != 10 || len(wants) != 2 {
		t.Errorf("%v, %v", wants, err)
	}
	for _, bad := range []string{"sha-256=11", "sha-256=-1", "sha-256=?1", "sha-256=1.5"} {
		if got, err := ParseWants([]string{bad}); !errors.Is(err, ErrField) {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
}

// No header brings a reader down, and what is read of digests reads the same when it is written again.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{"1", "?1;a=\"b\"", "sha-256=:AAEC:, b=(1 2);c", "max-size=1, a=%\"x\", d=@1", "a=1.5", "*=:AA==:;x"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, values := range [][]string{{one}, {one, two}} {
			if n, ok := ParseInteger(values); ok && (n < 0 || n > 999_999_999_999_999) {
				t.Errorf("%q is %d", values, n)
			}
			ParseBoolean(values)
			wants, err := ParseWants(values)
			for name, n := range wants {
				if n < 0 || n > 10 || err != nil {
					t.Errorf("%q weighs %s as %d", values, name, n)
				}
			}
			digests, err := ParseDigests(values)
			if err != nil && !errors.Is(err, ErrField) {
				t.Error(err)
			}
			for name, digest := range digests {
				again, err := ParseDigests([]string{FormatDigest(name, digest)})
				if err != nil || !bytes.Equal(again[name], digest) {
					t.Errorf("%s of %q reads %v, %v", name, values, again, err)
				}
			}
		}
	})
}
