package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// grading is a driver whose receipts are worth what the simulation says.
type grading struct {
	uplink.Driver
	d *simDevice
}

// Reserve implements uplink.Driver.
func (g *grading) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	res, err := g.Driver.Reserve(ctx, m, s)
	if res.Receipt != nil && g.d.grade != "" {
		res.Receipt.Grade = g.d.grade
	}
	return res, err
}

// Register implements uplink.Driver.
func (g *grading) Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v uplink.Verdict) (receipt.Receipt, error) {
	r, err := g.Driver.Register(ctx, m, s, v)
	if g.d.grade != "" {
		r.Grade = g.d.grade
	}
	return r, err
}

// lowerGrade makes the server's receipts worth less than delivery, with two files waiting.
func lowerGrade(s *sim) {
	s.device.grade = receipt.VerifiedDigest
	twoWaiting(s)
}

// accepting lets such receipts count from the next start on, and before that expects that nothing is delivered by them.
func accepting(s *sim) {
	delivered, err := filepath.Glob(filepath.Join(s.device.dir, "delivered", "*", "*"))
	must(s.t, err)
	if len(delivered) > 0 {
		s.t.Errorf("among the delivered copies, and nobody accepted that: %v", delivered)
	}
	s.device.cfg.Uplink.AcceptGrade = config.AcceptVerifiedDigest
}

// sendLower sends two files whose receipts are no delivery, one of them paused since, and stops the device.
func (s *sim) sendLower() {
	lowerGrade(s)
	_, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{})
	must(s.t, err)
	s.rest(5 * time.Minute)
	for id, e := range s.records() {
		if e.Manifest.Condition() != attachment.ShownSent {
			s.t.Errorf("%s is %s", e.Manifest.Filename.Text, e.Manifest.Condition())
		}
		if e.Manifest.Filename.Text == "small.jpg" {
			s.pauseOne(id)
		}
	}
	s.device.stop(false)
}

func (s *sim) sentUnaccepted() {
	s.sendLower()
	accepting(s)
}

func (s *sim) sentAndDamaged() {
	s.sendLower()
	must(s.t, os.WriteFile(filepath.Join(s.device.dir, queueFile), damagedQueue, 0o600))
}

func (s *sim) acceptAndRebuildAgain() {
	accepting(s)
	s.rebuildAgain()
}

// acceptedOnce expects that everything was sent once and is delivered by a receipt of the lower grade.
func acceptedOnce(s *sim) {
	sentOnce(s)
	for _, e := range s.records() {
		if m := e.Manifest; m.State != attachment.Reconciled || m.Delivery.Grade != string(receipt.VerifiedDigest) {
			s.t.Errorf("%s is %s with grade %q", m.Filename.Text, m.State, m.Delivery.Grade)
		}
	}
}
