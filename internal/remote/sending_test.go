package remote

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A body gives its bytes and no more, says what went wrong with them, and leaves them alone once it ended.
func TestSending(t *testing.T) {
	var moved int64
	s := newSending(strings.NewReader("0123456789"), 4, func(n int64) { moved += n })
	if got, err := io.ReadAll(s); string(got) != "0123" || err != nil || moved != 4 || s.end() != nil {
		t.Errorf("%q, %v, %d moved", got, err, moved)
	}
	card := errors.New("card removed")
	for err, r := range map[error]io.Reader{
		ErrShortBody: strings.NewReader("01"), card: io.MultiReader(strings.NewReader("01"), iotest.ErrReader(card)),
	} {
		s := newSending(r, 4, nil)
		for range 2 {
			if _, got := io.ReadAll(s); !errors.Is(got, err) {
				t.Errorf("read: %v, want %v", got, err)
			}
		}
		if got := s.end(); !errors.Is(got, err) {
			t.Errorf("end: %v, want %v", got, err)
		}
	}
	untouched := iotest.ErrReader(errors.New("touched"))
	s = newSending(untouched, 4, nil)
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, errEnded) {
		t.Errorf("read after the end: %v", err)
	}
}
