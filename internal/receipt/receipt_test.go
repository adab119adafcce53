package receipt

import (
	"errors"
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
	} {
		r := good
		spoil(&r)
		if err := Check(r, facts); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	facts.Parent.ServerID = ""
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
