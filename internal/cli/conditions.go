package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// meanings explain the conditions in the help of the flags that take one.
var meanings = map[attachment.Condition]string{
	attachment.ShownAttention: "a person is needed; show says for what",
	attachment.ShownReview:    "its record was deleted here; somebody has to decide",
	attachment.ShownUploading: "on its way",
	attachment.ShownWaiting:   "goes on by itself",
	attachment.ShownPaused:    "somebody paused it",
	attachment.ShownCaptured:  "taken; something it needs before sending is still awaited",
	attachment.ShownUploaded:  "the server has the bytes; the receipt is missing",
	attachment.ShownSent:      "the server's receipt does not count as delivery",
	attachment.ShownDelivered: "there is a receipt",
	attachment.ShownDiscarded: "somebody decided to delete it",
	attachment.ShownCancelled: "no longer wanted before it was delivered",
}

// conditionHelp is the table of conditions as help text.
func conditionHelp() string {
	var b strings.Builder
	b.WriteString("Conditions:\n")
	for _, c := range attachment.Conditions() {
		fmt.Fprintf(&b, "  %-32s  %s\n", c, meanings[c])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// conditions lists the words that --condition and --for take.
func conditions() []string {
	var words []string
	for _, c := range attachment.Conditions() {
		words = append(words, string(c))
	}
	return words
}

func parseCondition(text string) (attachment.Condition, error) {
	if !slices.Contains(conditions(), text) {
		return "", usagef("there is no condition %q, but %s", text, strings.Join(conditions(), ", "))
	}
	return attachment.Condition(text), nil
}
