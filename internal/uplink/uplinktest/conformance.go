package uplinktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Factory connects two drivers, as two workers of one device, to a server of their kind that may keep what earlier calls
// left there.
type Factory func(t *testing.T) (one, two uplink.Driver)

// Run demands of a driver what every driver promises, and of the rest exactly what it declares.
func Run(t *testing.T, connect Factory) {
	always := func(uplink.Capabilities) bool { return true }
	var names, results []string
	var driver string
	for _, c := range []struct {
		name  string
		needs func(uplink.Capabilities) bool
		test  func(s *suite, t *testing.T)
	}{
		{"whole way", always, (*suite).wholeWay},
		{"empty content", always, (*suite).empty},
		{"cancelled context", always, (*suite).cancelledContext},
		{"cancelled session", always, (*suite).cancelledSession},
		{"interrupted append", func(c uplink.Capabilities) bool { return c.Resume }, (*suite).interrupted},
		{"confirmed meanwhile", func(c uplink.Capabilities) bool { return c.ConfirmedOffsets }, (*suite).confirmedMeanwhile},
		{"wrong offset", func(c uplink.Capabilities) bool { return c.ConfirmedOffsets }, (*suite).wrongOffset},
		{"other bytes", func(c uplink.Capabilities) bool { return c.Digests }, (*suite).otherBytes},
		{"reserved again", func(c uplink.Capabilities) bool { return c.ConditionalCreate }, (*suite).reservedAgain},
		{"reserved at one time", func(c uplink.Capabilities) bool { return c.ConditionalCreate }, (*suite).reservedTogether},
		{"same content twice", func(c uplink.Capabilities) bool { return c.ConditionalCreate }, (*suite).sameContent},
	} {
		var name string
		asked := false
		passed := t.Run(c.name, func(t *testing.T) {
			one, two := connect(t)
			name, asked = one.Name(), c.needs(one.Capabilities())
			if asked {
				c.test(&suite{one: one, two: two, sessions: map[attachment.ID]attachment.Session{}}, t)
			}
		})
		switch {
		case !passed:
			results = append(results, "**failed**")
		case !asked:
			results = append(results, "not declared")
		default:
			results = append(results, "passed")
		}
		driver, names = name, append(names, c.name)
	}
	t.Logf("| driver | %s |", strings.Join(names, " | "))
	t.Logf("| %s | %s |", driver, strings.Join(results, " | "))
}

type suite struct {
	one, two uplink.Driver
	// sessions are those used last: what a delivery hands to its driver.
	sessions map[attachment.ID]attachment.Session
}

const contentSize = 300 << 10 // bytes: more than one buffer, and a part of one

// fresh is content that no server has, as long as nobody tells it the seed.
func fresh(t *testing.T, n int) []byte {
	seed := rand.Uint64()
	t.Logf("content of seed %d", seed)
	return Content(seed, n)
}

func (s *suite) reserve(t *testing.T, d uplink.Driver, m *attachment.Manifest) uplink.Reservation {
	t.Helper()
	res, err := d.Reserve(t.Context(), m, s.sessions[m.ID])
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	s.sessions[m.ID] = res.Session
	set := 0
	for _, b := range []bool{res.BytesNeeded, res.Verified != nil, res.Receipt != nil} {
		if b {
			set++
		}
	}
	if set != 1 {
		t.Fatalf("reserve says several things at once, or none: %+v", res)
	}
	return res
}

// bytesOf is the append of content's bytes from one offset to another.
func bytesOf(m *attachment.Manifest, at attachment.Session, content []byte, from, to int64) uplink.Append {
	return uplink.Append{
		Manifest: m, Session: at, Offset: from, Length: to - from,
		Body: func() io.Reader { return bytes.NewReader(content[from:to]) },
	}
}

func (s *suite) append(t *testing.T, m *attachment.Manifest, at uplink.Reservation, content []byte, from, to int64) {
	t.Helper()
	var moved int64
	a := bytesOf(m, at.Session, content, from, to)
	a.Moved = func(n int64) { moved += n }
	got, err := s.one.Append(t.Context(), a)
	if err != nil || got != to {
		t.Fatalf("append %d to %d: offset %d, %v", from, to, got, err)
	}
	if moved < to-from {
		t.Errorf("append %d to %d: %d bytes were heard of", from, to, moved)
	}
}

func (s *suite) register(t *testing.T, d uplink.Driver, m *attachment.Manifest) receipt.Receipt {
	t.Helper()
	got, err := s.tryRegister(t, d, m)
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	err = receipt.Check(got, receipt.Facts{
		AttachmentID: string(m.ID), Length: m.Length, SHA256: m.SHA256.String(),
		Parent: receipt.Parent{LocalID: m.Parent.LocalID.Text},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// tryRegister does what a delivery does: a driver that writes the receipt itself is asked for its verdict before.
func (s *suite) tryRegister(t *testing.T, d uplink.Driver, m *attachment.Manifest) (receipt.Receipt, error) {
	t.Helper()
	var v uplink.Verdict
	if !d.Capabilities().Registers {
		var err error
		if v, err = d.Verify(t.Context(), m, s.sessions[m.ID]); err != nil {
			return receipt.Receipt{}, err
		}
		if v.Length != m.Length || v.SHA256 != "" && v.SHA256 != m.SHA256.String() {
			return receipt.Receipt{}, errOtherBytes
		}
	}
	return d.Register(t.Context(), m, s.sessions[m.ID], v)
}

var errOtherBytes = remote.Refused(remote.StepVerify, wire.CodeDigestMismatch)

func (s *suite) deliver(t *testing.T, m *attachment.Manifest, content []byte) receipt.Receipt {
	t.Helper()
	if res := s.reserve(t, s.one, m); res.BytesNeeded {
		s.append(t, m, res, content, res.Offset, m.Length)
	}
	return s.register(t, s.one, m)
}

// Two appends and the other steps end in a receipt, and each step says the same when it is repeated.
func (s *suite) wholeWay(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	if !res.BytesNeeded || res.Offset != 0 {
		t.Fatalf("new content: %+v", res)
	}
	half := m.Length / 2
	if res.MinAppend > half {
		half = 0 // it takes no parts of content as small as this
	} else {
		s.append(t, m, res, content, 0, half)
	}
	if at, err := s.one.Offset(t.Context(), m, res.Session); err != nil || at != half {
		t.Fatalf("offset %d, %v; want %d", at, err, half)
	}
	var refused *remote.Error
	if _, err := s.tryRegister(t, s.one, m); !errors.As(err, &refused) {
		t.Fatalf("registered without all bytes: %v", err)
	}
	s.append(t, m, res, content, half, m.Length)
	want := uplink.Verdict{Length: m.Length}
	if s.one.Capabilities().Digests {
		want.SHA256 = m.SHA256.String()
	}
	for range 2 {
		if v, err := s.one.Verify(t.Context(), m, res.Session); err != nil || v != want {
			t.Fatalf("verdict %+v, %v; want %+v", v, err, want)
		}
	}
	first, second := s.register(t, s.one, m), s.register(t, s.two, m)
	if first.MediaID != second.MediaID {
		t.Fatalf("two registrations: %+v and %+v", first, second)
	}
	if s.one.Capabilities().Registers && !first.RegisteredAt.Equal(second.RegisteredAt) {
		t.Fatalf("two times of registration: %+v and %+v", first, second)
	}
	if res := s.reserve(t, s.two, m); res.BytesNeeded && res.Offset != m.Length {
		t.Errorf("registered, and bytes are wanted: %+v", res)
	}
}

// Content without bytes is delivered like any other.
func (s *suite) empty(t *testing.T) {
	m := NewManifest(t, nil)
	res := s.reserve(t, s.one, m)
	if _, err := s.one.Verify(t.Context(), m, res.Session); err != nil && res.BytesNeeded {
		s.append(t, m, res, nil, 0, 0)
	}
	s.register(t, s.one, m)
}

// An ended context ends a request with class cancelled and harms nothing.
func (s *suite) cancelledContext(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.one.Append(ctx, bytesOf(m, res.Session, content, 0, m.Length)); remote.ClassOf(err) != remote.Cancelled {
		t.Errorf("append: class %q of %v", remote.ClassOf(err), err)
	}
	if _, err := s.one.Reserve(ctx, m, res.Session); remote.ClassOf(err) != remote.Cancelled {
		t.Errorf("reserve: class %q of %v", remote.ClassOf(err), err)
	}
	s.deliver(t, m, content)
}

// A cancelled session takes no bytes any more, and the attachment is delivered all the same. A server that cannot cancel
// says so.
func (s *suite) cancelledSession(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	if res.MinAppend <= 1000 {
		s.append(t, m, res, content, 0, 1000)
	}
	err := s.one.Cancel(t.Context(), res.Session)
	if refusal, ok := errors.AsType[*remote.Error](err); ok && refusal.Kind == remote.KindProblem {
		t.Logf("this server does not cancel: %v", err)
	} else if err != nil {
		t.Fatalf("cancel: %v", err)
	} else {
		if at, err := s.one.Offset(t.Context(), m, res.Session); err == nil && s.one.Capabilities().Resume {
			t.Errorf("a cancelled session has offset %d", at)
		}
		s.sessions[m.ID] = attachment.Session{}
		if err := s.one.Cancel(t.Context(), res.Session); err != nil {
			t.Errorf("cancel again: %v", err)
		}
	}
	s.deliver(t, m, content)
}

// An append that breaks off leaves a prefix of its bytes, from which sending goes on.
func (s *suite) interrupted(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	gone := errors.New("card removed")
	a := bytesOf(m, res.Session, content, 0, m.Length)
	a.Body = func() io.Reader {
		return io.MultiReader(bytes.NewReader(content[:m.Length/2]), &brokenReader{gone})
	}
	_, err := s.one.Append(t.Context(), a)
	if failed, ok := errors.AsType[*remote.Error](err); !ok || failed.Kind != remote.KindUnread || !errors.Is(err, gone) {
		t.Fatalf("append of bytes that cannot be read: %v", err)
	}
	at, err := s.two.Offset(t.Context(), m, res.Session)
	if err != nil || at < 0 || at > m.Length/2 {
		t.Fatalf("offset %d, %v", at, err)
	}
	for tries := 1; ; tries++ {
		res = s.reserve(t, s.one, m)
		if res.Offset < at || res.Offset > m.Length/2 {
			t.Fatalf("reserve says offset %d after the session said %d", res.Offset, at)
		}
		_, err := s.one.Append(t.Context(), bytesOf(m, res.Session, content, res.Offset, m.Length))
		if err == nil {
			break
		}
		// The server may be at work with what arrived before.
		if failed, ok := errors.AsType[*remote.Error](err); !ok || failed.Class != remote.ItemTransient || tries == maxTries {
			t.Fatalf("append from %d: %v", res.Offset, err)
		}
	}
	s.register(t, s.one, m)
}

// maxTries bounds the appends to a session whose last one may not have ended; each takes a while.
const maxTries = 1000

type brokenReader struct{ err error }

// Read implements io.Reader.
func (b *brokenReader) Read([]byte) (int, error) { return 0, b.err }

// What is confirmed while an append lasts lies within it, and nothing is heard of after its end. The session holds it.
func (s *suite) confirmedMeanwhile(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	if !res.Streams {
		t.Log("this server confirms nothing while an append lasts")
		s.append(t, m, res, content, 0, m.Length)
		s.register(t, s.one, m)
		return
	}
	var mu sync.Mutex
	var heard []int64
	ended := false
	hear := func(offset int64) {
		mu.Lock()
		defer mu.Unlock()
		if heard = append(heard, offset); ended {
			t.Errorf("offset %d was told after the append", offset)
		}
	}
	half := m.Length / 2
	for _, to := range []int64{half, m.Length} {
		a := bytesOf(m, res.Session, content, res.Offset, to)
		a.Confirmed = hear
		got, err := s.one.Append(t.Context(), a)
		if err != nil || got != to {
			t.Fatalf("append to %d: offset %d, %v", to, got, err)
		}
		mu.Lock()
		for _, offset := range heard {
			if offset < res.Offset || offset > to {
				t.Errorf("offset %d was told in an append of %d to %d", offset, res.Offset, to)
			}
		}
		t.Logf("%d offsets told up to %d", len(heard), to)
		heard = nil
		mu.Unlock()
		res.Offset = to
	}
	mu.Lock()
	ended = true
	mu.Unlock()
	s.register(t, s.one, m)
}

// An append that does not begin at the confirmed offset changes nothing.
func (s *suite) wrongOffset(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	s.append(t, m, res, content, 0, 1000)
	for _, from := range []int64{0, 999, 1001, 2000} {
		at, err := s.one.Append(t.Context(), bytesOf(m, res.Session, content, from, from+500))
		if refused, ok := errors.AsType[*remote.Error](err); !ok || refused.Class != remote.ItemTransient {
			t.Errorf("append at %d of 1000: offset %d, %v", from, at, err)
		}
		if at, err := s.one.Offset(t.Context(), m, res.Session); err != nil || at != 1000 {
			t.Fatalf("after append at %d: offset %d, %v; want 1000", from, at, err)
		}
	}
	s.append(t, m, res, content, 1000, m.Length)
	s.register(t, s.one, m)
}

// Bytes that are not the announced ones are never verified or registered.
func (s *suite) otherBytes(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	res := s.reserve(t, s.one, m)
	other := bytes.Clone(content)
	other[len(other)/2] ^= 1
	_, failed := s.one.Append(t.Context(), bytesOf(m, res.Session, other, 0, m.Length))
	v, err := s.one.Verify(t.Context(), m, res.Session)
	if failed == nil && err == nil && v.SHA256 == m.SHA256.String() {
		t.Fatal("other bytes are verified")
	}
	if got, err := s.tryRegister(t, s.one, m); err == nil {
		t.Fatalf("other bytes are registered: %+v", got)
	}
}
