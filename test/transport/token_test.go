package transport

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/test/rig"
)

func decode(text string, v any) error { return json.Unmarshal([]byte(text), v) }

// A token lives for a part of a transfer only. Whether it is replaced in time or after it was refused: the transfer goes on
// in the same session, and no byte crosses the link twice.
func TestTokenExpiresInTransfer(t *testing.T) {
	for name, inTime := range map[string]bool{"replaced before it expires": true, "replaced after it was refused": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const (
				size    = 12 << 20
				rate    = 1 << 20 // the transfer takes twice as long as the token lives
				life    = 6 * time.Second
				chunk   = 256 << 10
				allowed = chunk / 2 // for headers, TLS and the control plane: less than one chunk
			)
			dir := shortDir(t)
			s := newScene(t, rig.Options{Dir: dir, Credential: filepath.Join(dir, "token"), Uplink: `chunk_size = "256KiB"`})
			expires := time.Now().Add(life).Truncate(time.Second)
			must(t, "make token", s.NewToken(t.Context(), "tablet", s.Credential, expires))
			s.Link.SetRate(rate)
			must(t, "start", s.StartDaemon(t.Context()))
			s.drop("video.mp4", size)
			if inTime {
				s.until("half of the token's life", func() (bool, error) { return time.Until(expires) < life/2, nil })
			} else {
				// An append that has begun is not asked for its token again, so the link is cut for it.
				s.until("the token's end", func() (bool, error) { return time.Now().After(expires), nil })
				s.Link.Cut()
				s.Link.Restore()
				s.held(attachment.HoldCredentials)
			}
			before := s.Link.BytesUp()
			if before == 0 || before >= size {
				t.Fatalf("replaced after %d bytes of %d: not in mid-transfer", before, size)
			}
			must(t, "replace token", s.NewToken(t.Context(), "tablet", s.Credential, time.Time{}))
			s.delivered("video.mp4")
			s.uncharged("video.mp4", 1)
			if time.Now().Before(expires) {
				t.Error("delivered before the token expired")
			}
			over := s.Link.BytesUp() - size
			if over < 0 || over > allowed {
				t.Errorf("%d bytes crossed the link for a file of %d", s.Link.BytesUp(), size)
			}
			t.Logf("file %d bytes, token replaced after %d bytes, link carried %d (+%.2f %%), 1 session, 0 failures charged",
				size, before, s.Link.BytesUp(), 100*float64(over)/size)
		})
	}
}
