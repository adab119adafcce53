package receipt

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Only a receipt that repeats every fact of the attachment passes; any one field wrong and it is refused.
func TestCheckRefusesEveryOtherReceipt(t *testing.T) {
	facts := Facts{AttachmentID: "a", Length: 5, SHA256: "d1", Parent: Parent{LocalID: "insp-7", ServerID: "S1"}}
	good := Receipt{
		AttachmentID: "a", MediaID: "m", Length: 5, SHA256: "d1", Parent: facts.Parent,
		Grade: RegisteredDurable, RegisteredAt: time.Unix(1, 0),
	}
	if err := Check(good, facts); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Receipt){
		"attachment": func(r *Receipt) { r.AttachmentID = "b" },
		"length":     func(r *Receipt) { r.Length = 4 },
		"digest":     func(r *Receipt) { r.SHA256 = "d2" },
		"parent":     func(r *Receipt) { r.Parent.LocalID = "" },
		"parent raw": func(r *Receipt) { r.Parent.LocalIDRaw = []byte{0xff} },
		"server id":  func(r *Receipt) { r.Parent.ServerID = "S2" },
		"grade":      func(r *Receipt) { r.Grade = "splendid" },
		"media":      func(r *Receipt) { r.MediaID = "" },

		"media too long":     func(r *Receipt) { r.MediaID = strings.Repeat("m", 256) },
		"media escape":       func(r *Receipt) { r.MediaID = "\x1b]0;title\a" },
		"media line end":     func(r *Receipt) { r.MediaID = "m\n" },
		"media no UTF-8":     func(r *Receipt) { r.MediaID = "m\xff" },
		"server too long":    func(r *Receipt) { r.Server = strings.Repeat("s", 256) },
		"server escape":      func(r *Receipt) { r.Server = "\x1b[31mred" },
		"never registered":   func(r *Receipt) { r.RegisteredAt = time.Time{} },
		"beyond RFC 3339":    func(r *Receipt) { r.RegisteredAt = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600)) },
		"before RFC 3339":    func(r *Receipt) { r.RegisteredAt = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) },
		"takeover too long":  func(r *Receipt) { r.Takeover = &Takeover{Device: strings.Repeat("d", 256), At: time.Unix(1, 0)} },
		"takeover not dated": func(r *Receipt) { r.Takeover = &Takeover{Device: "d"} },
	} {
		r := good
		spoil(&r)
		if err := Check(r, facts); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	facts.Parent.ServerID = ""
	for name, id := range map[string]string{"too long": strings.Repeat("x", 1025), "no UTF-8": "\xff"} {
		r := good
		if r.Parent.ServerID = id; !errors.Is(Check(r, facts), ErrMismatch) {
			t.Errorf("server ID that the device has not heard of yet, %s: accepted", name)
		}
	}
	full := good
	full.MediaID, full.Server = strings.Repeat("m", 255), "fieldgw/Größe "+strings.Repeat("s", 239)
	full.Takeover = &Takeover{Device: "tablet-2", At: time.Unix(1, 0)}
	if err := Check(full, facts); err != nil {
		t.Errorf("as long as may be: %v", err)
	}
	if err := Check(good, facts); err != nil {
		t.Errorf("server ID that the device has not heard of yet: %v", err)
	}
}

// Only the two registered grades are delivery by themselves.
func TestGrades(t *testing.T) {
	want := map[Grade]bool{RegisteredDurable: true, Registered: true, VerifiedDigest: false, LengthOnly: false, "x": false}
	for g, delivered := range want {
		if g.Delivered() != delivered || g.Known() == (g == "x") {
			t.Errorf("%s: delivered %v, known %v", g, g.Delivered(), g.Known())
		}
	}
}
