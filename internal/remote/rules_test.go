package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// codes are those that the protocol has, and before them none and one that this version does not know.
var codes = append([]wire.Code{"", "a_code_of_the_future"}, wire.Codes()...)

// answers are the kinds that come with a status.
var answers = []Kind{KindProblem, KindForeign, KindMismatch, KindPending, KindProxy}

// everyCase calls f for every status, and none, at every step, with every kind, code and circumstance.
func everyCase(f func(Case)) {
	for _, step := range Steps() {
		for _, kind := range Kinds() {
			statuses := []int{0}
			for status := 100; status <= 599 && slices.Contains(answers, kind); status++ {
				statuses = append(statuses, status)
			}
			for _, status := range statuses {
				for i := range 4 {
					c := Case{Step: step, Kind: kind, Status: status, Waits: i&1 != 0, Smallest: i&2 != 0}
					if kind != KindProblem {
						f(c)
						continue
					}
					for j, code := range codes {
						if c.Problem = code; j < 2 || !c.Waits { // a known code says more than a Retry-After
							f(c)
						}
					}
				}
			}
		}
	}
}

// Every case has a ruling that makes sense, and every row of the table is needed.
func TestEveryCaseIsJudged(t *testing.T) {
	used := make([]bool, len(rules))
	kinds := map[attachment.Code]attachment.Kind{}
	for _, a := range attachment.Codes() {
		kinds[a.Code] = a.Kind
	}
	everyCase(func(c Case) {
		used[slices.IndexFunc(rules, func(r rule) bool { return r.covers(c) })] = true
		is := Classify(c)
		kind, known := kinds[is.Reason]
		var wrong string
		switch {
		case is.Class == Cancelled && (c.Kind != KindCancelled || is != Ruling{Class: Cancelled}):
			wrong = "cancelled, and more"
		case is.Class == Cancelled:
			return
		case !known:
			wrong = "no reason that people are told"
		case is.Class != ItemTransient && is.Class != ItemPermanent && is.Class != ChannelTransient && is.Class != ChannelOperator:
			wrong = "no class of a failure"
		case (is.Class == ItemPermanent) != (kind == attachment.KindAttention):
			wrong = "a person is needed for the item, or not"
		case is.Charge && is.Class != ItemTransient && is.Class != ItemPermanent:
			wrong = "an item is charged for the channel"
		case c.Step == StepProbe && (is.Class == ItemTransient || is.Class == ItemPermanent):
			wrong = "a probe is of no item"
		case is.Repeats < 0 || is.Repeats > 3:
			wrong = "no bound"
		case c.Kind == KindForeign && (is.Class == ItemPermanent || is.Class == ChannelOperator || is.Class == ChannelTransient && !is.Confirm):
			wrong = "whatever stands in between decides by itself"
		case is.Shrink && (c.Smallest || c.Step != StepAppend):
			wrong = "nothing to make smaller"
		}
		if wrong != "" {
			t.Fatalf("%+v: %+v: %s", c, is, wrong)
		}
	})
	for i, r := range rules[:len(rules)-1] {
		if !used[i] {
			t.Errorf("row %d is never reached: %+v", i, r)
		}
	}
}

// The rulings that the protocol names, one by one.
func TestRulings(t *testing.T) {
	ours := func(step Step, status int, code wire.Code) Case {
		return Case{Step: step, Kind: KindProblem, Status: status, Problem: code}
	}
	foreign := func(step Step, status int) Case { return Case{Step: step, Kind: KindForeign, Status: status} }
	for _, c := range []struct {
		is     Case
		class  Class
		reason attachment.Code
		charge bool
		again  int
	}{
		{ours(StepReserve, 400, wire.CodeInvalid), ItemPermanent, attachment.NeedsRefused, true, 0},
		{ours(StepAppend, 400, wire.CodeInvalid), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepReserve, 401, wire.CodeCredentials), ChannelOperator, attachment.HoldCredentials, false, 0},
		{ours(StepOffset, 401, ""), ChannelOperator, attachment.HoldCredentials, false, 0},
		{ours(StepReserve, 403, wire.CodeForbidden), ItemPermanent, attachment.NeedsForbidden, true, 0},
		{ours(StepProbe, 403, wire.CodeForbidden), ChannelOperator, attachment.HoldCredentials, false, 0},
		{ours(StepOffset, 403, ""), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepAppend, 404, wire.CodeNotFound), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepAppend, 408, "timeout"), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepAppend, 409, wire.CodeOffsetMismatch), ItemTransient, attachment.HoldBackoff, true, 3},
		{ours(StepReserve, 409, wire.CodeIdentityConflict), ItemPermanent, attachment.NeedsIdentityConflict, true, 0},
		{ours(StepRegister, 409, wire.CodeNotVerified), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepOffset, 410, ""), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepAppend, 412, wire.CodeTusVersion), ChannelOperator, attachment.HoldServerError, false, 0},
		{ours(StepReserve, 413, wire.CodeSizeLimit), ItemPermanent, attachment.NeedsSizeLimit, true, 0},
		{ours(StepAppend, 413, wire.CodeAppendLimit), ItemTransient, attachment.HoldBackoff, true, 0},
		{foreign(StepAppend, 413), ItemTransient, attachment.HoldBackoff, true, 0},
		{Case{Step: StepAppend, Kind: KindForeign, Status: 413, Smallest: true}, ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{foreign(StepReserve, 413), ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{ours(StepReserve, 415, wire.CodeMediaType), ItemPermanent, attachment.NeedsMediaType, true, 0},
		{ours(StepRegister, 422, wire.CodeParentPolicy), ItemPermanent, attachment.NeedsParentPolicy, true, 0},
		{ours(StepAppend, 422, wire.CodeDigestMismatch), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepAppend, 423, wire.CodeBusy), ItemTransient, attachment.HoldServerBusy, false, 3},
		{ours(StepReserve, 425, "too_early"), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepReserve, 429, wire.CodeTooMany), ChannelTransient, attachment.HoldServerBusy, false, 0},
		{ours(StepAppend, 460, "checksum"), ItemTransient, attachment.HoldBackoff, true, 3},
		{ours(StepReserve, 500, wire.CodeInternal), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepReserve, 501, "later"), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepReserve, 503, wire.CodeShuttingDown), ChannelTransient, attachment.HoldServerBusy, false, 0},
		{ours(StepReserve, 503, "tired"), ItemTransient, attachment.HoldServerError, true, 1},
		{ours(StepReserve, 507, wire.CodeServerFull), ChannelOperator, attachment.HoldServerFull, false, 0},
		{foreign(StepReserve, 200), ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{foreign(StepReserve, 302), ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{foreign(StepReserve, 401), ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{foreign(StepReserve, 511), ChannelTransient, attachment.HoldNotOurServer, false, 0},
		{foreign(StepAppend, 502), ItemTransient, attachment.HoldServerError, true, 1},
		{Case{Step: StepAppend, Kind: KindForeign, Status: 503, Waits: true}, ChannelTransient, attachment.HoldServerBusy, false, 0},
		{Case{Step: StepReserve, Kind: KindConnect}, ChannelTransient, attachment.HoldOffline, false, 0},
		{Case{Step: StepReserve, Kind: KindCredential}, ChannelOperator, attachment.HoldCredentialUnusable, false, 0},
		{Case{Step: StepProbe, Kind: KindCredential}, ChannelOperator, attachment.HoldCredentialUnusable, false, 0},
		{Case{Step: StepReserve, Kind: KindTLS}, ChannelOperator, attachment.HoldTLS, false, 0},
		{Case{Step: StepReserve, Kind: KindCertificate}, ChannelOperator, attachment.HoldCertificate, false, 0},
		{Case{Step: StepReserve, Kind: KindProxy, Status: 407}, ChannelOperator, attachment.HoldProxy, false, 0},
		{Case{Step: StepReserve, Kind: KindProxy, Status: 502}, ChannelTransient, attachment.HoldOffline, false, 0},
		{Case{Step: StepAppend, Kind: KindMoved}, ItemTransient, attachment.HoldOffline, false, 3},
		{Case{Step: StepAppend, Kind: KindBroken}, ItemTransient, attachment.HoldOffline, true, 3},
		{Case{Step: StepRegister, Kind: KindPending, Status: 202}, ItemTransient, attachment.HoldWaitingParent, false, 0},
		{Case{Step: StepRegister, Kind: KindMismatch, Status: 200}, ItemPermanent, attachment.NeedsReceiptMismatch, true, 0},
	} {
		got := Classify(c.is)
		if got.Class != c.class || got.Reason != c.reason || got.Charge != c.charge || got.Repeats != c.again {
			t.Errorf("%+v: %+v", c.is, got)
		}
	}
}

type hold struct{ error }

func (hold) HoldCode() attachment.Code { return attachment.HoldPaused }

// Every error has a class.
func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, ""},
		{fmt.Errorf("x: %w", Fail(StepAppend, KindTLS, nil)), ChannelOperator},
		{fmt.Errorf("x: %w", context.Canceled), Cancelled},
		{context.DeadlineExceeded, Cancelled},
		{fmt.Errorf("x: %w", hold{errors.New("paused")}), Held},
		{errors.New("disk full"), Local},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
