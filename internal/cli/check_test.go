package cli

import (
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/control"
)

// check says when nothing is broken (exit 0), names what is with its remedy (exit 8), and repairs when asked to.
func TestCheck(t *testing.T) {
	g := newGateway(t)
	if out := g.run(t, "check"); out.code != exitDone || !strings.Contains(out.out, "Nothing is broken.") {
		t.Errorf("healthy: %+v", out)
	}
	g.Break(
		control.Finding{Kind: "manifest_damaged", ID: "01a22e73-ee3a-7b06-bf96-58df924c8317", Detail: "a\x1b[2Jb", Remedy: "fieldgwctl check --repair writes it anew"},
		control.Finding{Kind: "stray", Detail: "/state/spool/payload/x", Remedy: "look at it; nothing is done to it"},
	)
	out := g.run(t, "check")
	if out.code != exitAttention || !strings.Contains(out.out, "924c8317") || !strings.Contains(out.out, "--repair") || strings.Contains(out.out, "\x1b[2J") {
		t.Errorf("broken: %+v", out)
	}
	if out := g.run(t, "-o", "json", "check", "--repair"); out.code != exitAttention || !strings.Contains(out.out, `"repaired": 1`) || strings.Contains(out.out, "manifest_damaged") {
		t.Errorf("repaired: %+v", out)
	}
}
