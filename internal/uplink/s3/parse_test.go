package s3_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// What a store's refusals mean, by their code.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		class  remote.Class
		reason attachment.Code
	}{
		{403, "AccessDenied", remote.ChannelOperator, attachment.HoldCredentials},
		{403, "InvalidAccessKeyId", remote.ChannelOperator, attachment.HoldCredentials},
		{403, "SignatureDoesNotMatch", remote.ChannelOperator, attachment.HoldCredentials},
		{400, "ExpiredToken", remote.ChannelOperator, attachment.HoldCredentials},
		{403, "RequestTimeTooSkewed", remote.ChannelOperator, attachment.HoldCredentials},
		{404, "NoSuchBucket", remote.ChannelOperator, attachment.HoldServerError},
		{301, "PermanentRedirect", remote.ChannelOperator, attachment.HoldServerError},
		{400, "AuthorizationHeaderMalformed", remote.ChannelOperator, attachment.HoldServerError},
		{507, "XMinioStorageFull", remote.ChannelOperator, attachment.HoldServerFull},
		{503, "SlowDown", remote.ChannelTransient, attachment.HoldServerBusy},
		{429, "TooManyRequests", remote.ChannelTransient, attachment.HoldServerBusy},
		{500, "InternalError", remote.ItemTransient, attachment.HoldServerError},
		{200, "InternalError", remote.ItemTransient, attachment.HoldServerError},
		{409, "ConditionalRequestConflict", remote.ItemTransient, attachment.HoldBackoff},
		{400, "InvalidPart", remote.ItemTransient, attachment.HoldBackoff},
		{400, "EntityTooLarge", remote.ItemPermanent, attachment.NeedsSizeLimit},
		{400, "KeyTooLongError", remote.ItemPermanent, attachment.NeedsRefused},
	} {
		f := newFake()
		driver := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut {
				f.ServeHTTP(w, r)
				return
			}
			refuse(w, c.status, c.code)
		}))
		e := newDelivery(t, uplinktest.Content(1, 100)).mustFail(t, driver, small)
		if e.Class != c.class || e.Reason != c.reason || !strings.Contains(e.Detail, c.code) || strings.Contains(e.Error(), secretKey) {
			t.Errorf("%d %s: class %s, reason %s: %v", c.status, c.code, e.Class, e.Reason, e)
		}
	}
}

// An answer that refuses in XML is read, and nothing else is taken for one.
func FuzzProblem(f *testing.F) {
	for _, text := range []string{
		`<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>m</Message></Error>`, `<Error><Code/></Error>`, `<Errors/>`, `{}`,
		`<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>a.b</Code></Error>`, `<a><Error><Code>X</Code></Error></a>`, `<Error`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		code, detail, err := s3.Problem(nil, body)
		if err != nil && (code != "" || detail != "") {
			t.Fatalf("%q, %q beside %v", code, detail, err)
		}
		if err == nil && (!strings.Contains(string(body), "<Error") || strings.HasPrefix(detail, ":")) {
			t.Fatalf("%q is read from %q", detail, body)
		}
	})
}

func TestCredentials(t *testing.T) {
	for text, want := range map[string][3]string{
		"access_key_id=A\nsecret_access_key=S":                                                    {"A", "S", ""},
		"AWS_ACCESS_KEY_ID=A\r\nAWS_SECRET_ACCESS_KEY=S\r\nAWS_SESSION_TOKEN=T==":                 {"A", "S", "T=="},
		"# of the plant\n[default]\naws_access_key_id = A\n; x\naws_secret_access_key = S/+=\n\n": {"A", "S/+=", ""},
		"access_key_id=A": {}, "": {}, "A:S": {}, "access_key_id=\nsecret_access_key=S": {}, "access_key_id=A B\nsecret_access_key=S": {},
		"access_key_id=A\naccess_key_id=B\nsecret_access_key=S": {}, "access_key_id=A\nsecret_access_key=S\nregion=x": {},
		"[a]\naccess_key_id=A\n[b]\nsecret_access_key=S": {}, "access_key_id=A\nsecret_access_key=\"S\xff\"": {},
	} {
		got, err := s3.ParseCredential(text)
		if (err != nil) != (want == [3]string{}) || err != nil && !errors.Is(err, remote.ErrBadCredential) {
			t.Errorf("%q: %v", text, err)
		}
		if [3]string{got.AccessKeyID, got.SecretAccessKey, got.SessionToken} != want {
			t.Errorf("%q: %+v, want %q", text, got, want)
		}
	}
}

// A credential is read whole or refused, and an error says nothing of it.
func FuzzParseCredential(f *testing.F) {
	f.Add("access_key_id=AKIAEXAMPLE", "secret_access_key=", "MARKEDSECRET", "")
	f.Add("[default]", "", "MARKEDSECRET", "region = x")
	f.Add("aws_access_key_id = A", "aws_secret_access_key = ", "MARKEDSECRET", "\x00")
	f.Fuzz(func(t *testing.T, before, name, secret, after string) {
		got, err := s3.ParseCredential(before + "\n" + name + secret + "\n" + after)
		if err == nil && (got.AccessKeyID == "" || got.SecretAccessKey == "") {
			t.Fatalf("half a credential: %+v", got)
		}
		if err != nil && len(secret) > 8 && strings.Contains(secret, "SECRET") && strings.Contains(err.Error(), secret) {
			t.Fatalf("the error holds the secret: %v", err)
		}
	})
}

// The address of a session is read as it was written, or not at all.
func FuzzAddressOf(f *testing.F) {
	f.Add("put", "s3://evidence/plant-7/a%20b.jpg?part=8388608")
	f.Add("x", "https://h/v1/uploads/7")
	f.Add("x", "s3://b/%2e%2e/%00?part=1")
	f.Fuzz(func(t *testing.T, id, url string) {
		bucket, key, part, again, err := s3.AddressOf(id, url)
		if err != nil {
			return
		}
		b, k, p, _, err := s3.AddressOf(id, again)
		if err != nil || b != bucket || k != key || p != part || part < 1 || key == "" {
			t.Fatalf("%q: bucket %q, key %q, part %d; again %q %q %d, %v", url, bucket, key, part, b, k, p, err)
		}
	})
}

func TestPartSize(t *testing.T) {
	for _, c := range []struct{ chunk, length, want int64 }{
		{128 << 10, 100, s3.MinPart}, {8 << 20, 1 << 30, 8 << 20}, {8 << 20, 200e9, 20e6}, {8 << 20, 200e9 + 1, 20e6 + 1},
	} {
		if got := s3.PartSize(s3.MinPart, c.chunk, c.length); got != c.want {
			t.Errorf("%d bytes in chunks of %d: parts of %d, want %d", c.length, c.chunk, got, c.want)
		}
	}
}

// Metadata is ASCII of bounded length, cut between letters.
func TestEscaped(t *testing.T) {
	if got := s3.Escaped("grün/\n1.jpg", 480); got != "gr%C3%BCn%2F%0A1.jpg" {
		t.Errorf("%q", got)
	}
	if got := s3.Escaped("üü", 7); got != "%C3%BC" {
		t.Errorf("%q", got)
	}
}

// A conflict of conditional requests is not the end: what is there then is looked at.
func TestConditionalConflict(t *testing.T) {
	f := newFake()
	conflicts := 0
	driver := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == "*" && conflicts > 0 {
			conflicts--
			refuse(w, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
		f.ServeHTTP(w, r)
	}))
	for size, n := range map[int]int{100: 3, 3 * small: 1} {
		conflicts = n
		d := newDelivery(t, uplinktest.Content(1, size))
		if err := d.by(t, driver, small); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if d.rec.Seen().Losses != 0 || string(f.holds(string(d.m.ID))) != string(d.content) {
			t.Errorf("%d bytes: %+v", size, d.rec.Seen())
		}
	}
}

// A session of which nothing can be understood is gone, not a reason to wait.
func TestSessionOfAnother(t *testing.T) {
	_, err := inMemory(t, newFake()).Offset(t.Context(), uplinktest.NewManifest(t, nil), attachment.Session{ID: "x", URL: "https://h/x"})
	if e, ok := errors.AsType[*remote.Error](err); !ok || !e.Gone() || e.Problem != wire.CodeSessionGone {
		t.Errorf("got %v", err)
	}
}
