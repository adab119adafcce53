package foreign

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
)

// FuzzWebhookAnswer: no answer makes a receipt worth more than it proves, or one of other bytes.
func FuzzWebhookAnswer(f *testing.F) {
	digest := strings.Repeat("ab", 32)
	f.Add([]byte(`{"media_id":"m","server_id":"s","registered_at":"2026-03-04T05:06:07Z","length":7,"sha256":"`+digest+`"}`), true)
	f.Add([]byte(`{"length":7}`), false)
	f.Add([]byte(`{"sha256":"`+digest+`"}`), false)
	f.Add([]byte(`{"length":-1}`), true)
	f.Fuzz(func(t *testing.T, body []byte, verified bool) {
		var a registered
		if json.Unmarshal(body, &a) != nil {
			return
		}
		rec := receipt.Receipt{
			AttachmentID: "id", MediaID: "media", Length: 7, SHA256: digest, Grade: receipt.LengthOnly, RegisteredAt: time.Unix(1, 0),
		}
		if verified {
			rec.Grade = receipt.VerifiedDigest
		}
		if err := a.fill(&rec); err != nil {
			return
		}
		proven := verified || a.Length != nil && *a.Length == 7 && a.SHA256 == digest
		if rec.Grade.Delivered() != proven || rec.Grade == receipt.RegisteredDurable || rec.Length != 7 || rec.SHA256 != digest || rec.AttachmentID != "id" {
			t.Errorf("%s makes %+v", body, rec)
		}
	})
}
