package remote

import (
	"strings"
	"testing"
)

// Hiding ends, and leaves nothing, whatever credential and answer look like: also where one of them looks like the mark.
func FuzzHide(f *testing.F) {
	f.Add("fgw1.plant.tablet-1.Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM", "Bearer fgw1.plant.tablet-1.ZMLYC3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	f.Add("credential", "the credential")
	f.Add("[credential]", "[credential]")
	f.Fuzz(func(t *testing.T, token, text string) {
		forms := formsOf(token)
		shown := hide(text, forms)
		for _, form := range forms {
			for _, piece := range strings.Split(shown, concealed) {
				if form != "" && !strings.Contains(concealed, lower(form)) && strings.Contains(lower(piece), lower(form)) {
					t.Errorf("%q is in %q", form, shown)
				}
			}
		}
	})
}
