package wire

import "testing"

// What is said of limits is read as the draft has it: unknown members are passed over, a known one of another type spoils
// the whole header.
func TestParseUploadLimit(t *testing.T) {
	all := UploadLimit{MaxSize: 1000, MinSize: 1, MaxAppend: 100, MinAppend: 10, MaxAge: 3600}
	for _, c := range []struct {
		values []string
		want   UploadLimit
		ok     bool
	}{
		{[]string{"max-size=1000, min-size=1, max-append-size=100, min-append-size=10, max-age=3600"}, all, true},
		{[]string{"max-size=1000, min-size=1", "max-append-size=100,min-append-size=10, max-age=3600"}, all, true},
		{[]string{"min-size=0"}, UploadLimit{}, true},
		{[]string{"max-size=5;why=full, colour=red, list=(1 2), later=?0"}, UploadLimit{MaxSize: 5}, true},
		{[]string{"max-size=1, max-size=2"}, UploadLimit{MaxSize: 2}, true},
		{nil, UploadLimit{}, false},
		{[]string{"max-size=1000, max-age=1.5"}, UploadLimit{}, false},
		{[]string{"max-size=(1)"}, UploadLimit{}, false},
		{[]string{"max-size"}, UploadLimit{}, false},
		{[]string{"max-size=-1"}, UploadLimit{}, false},
		{[]string{"max-size=99999999999999999999"}, UploadLimit{}, false},
		{[]string{"max-size = 1"}, UploadLimit{}, false},
	} {
		if got, ok := ParseUploadLimit(c.values); got != c.want || ok != c.ok {
			t.Errorf("%q: %+v, %t", c.values, got, ok)
		}
	}
}

// No header makes a negative limit, or one without being said.
func FuzzParseUploadLimit(f *testing.F) {
	f.Add("max-size=1000, min-size=1, max-append-size=100, min-append-size=10, max-age=3600")
	f.Add("max-size=(1 2);a, min-size=?0")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseUploadLimit([]string{text})
		if !ok && got != (UploadLimit{}) || min(got.MaxSize, got.MinSize, got.MaxAppend, got.MinAppend, got.MaxAge) < 0 {
			t.Fatalf("%q: %+v, %t", text, got, ok)
		}
	})
}
