package remote

import (
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Case is everything that a failure is judged by.
type Case struct {
	Step    Step
	Kind    Kind
	Status  int       // of the answer; 0 without one
	Problem wire.Code // of a KindProblem; empty where the answer had no body
	// Waits: the answer carries a Retry-After that can be read.
	Waits bool
	// Smallest: the refused append cannot be made smaller.
	Smallest bool
}

// Ruling is what a failure means.
type Ruling struct {
	Class Class
	// Reason is what people are told; empty with Cancelled.
	Reason attachment.Code
	// Charge: an attempt is charged to the item, unless the channel turns out to be at fault.
	Charge bool
	// Repeats is how often the sender may repeat the step at once, after asking for the truth, before it gives up and
	// leaves the rest to the schedule. Progress starts the count anew.
	Repeats int
	// Confirm: the failure may be the item's or the channel's; Channel finds out by the status endpoint.
	Confirm bool
	// Shrink: a smaller append may be accepted.
	Shrink bool
}

// rule gives a ruling for the cases that meet every condition in it; an empty condition is met by all.
type rule struct {
	steps    []Step
	kinds    []Kind
	from, to int // statuses, both included
	codes    []wire.Code
	waits    bool
	smallest bool
	is       Ruling
}

func (r *rule) covers(c Case) bool {
	return (r.steps == nil || slices.Contains(r.steps, c.Step)) &&
		(r.kinds == nil || slices.Contains(r.kinds, c.Kind)) &&
		(r.to == 0 || r.from <= c.Status && c.Status <= r.to) &&
		(r.codes == nil || slices.Contains(r.codes, c.Problem)) &&
		(!r.waits || c.Waits) && (!r.smallest || c.Smallest)
}

// Classify judges a case: the first row of the table that covers it counts, and the last covers everything. No case of a
// probe is an item's.
func Classify(c Case) Ruling {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.covers(c) })
	is := rules[i].is
	if c.Step == StepProbe && (is.Class == ItemTransient || is.Class == ItemPermanent) {
		is.Class, is.Reason, is.Charge = ChannelTransient, forChannel(is.Reason), false
	}
	return is
}

// forChannel is the reason that is shown for the channel: what would need a person for one item is, once it concerns more
// than that, a matter of the credential's rights or of the server.
func forChannel(reason attachment.Code) attachment.Code {
	switch {
	case reason == attachment.NeedsForbidden:
		return attachment.HoldCredentials
	case attachment.Explain(reason).Kind == attachment.KindAttention:
		return attachment.HoldServerError
	}
	return reason
}

// Meanings that several rows share.
var (
	atSession = []Step{StepOffset, StepAppend}
	foreign   = []Kind{KindForeign}
	problem   = []Kind{KindProblem}

	notOurServer = Ruling{Class: ChannelTransient, Reason: attachment.HoldNotOurServer, Confirm: true}
	serverBusy   = Ruling{Class: ChannelTransient, Reason: attachment.HoldServerBusy}
	// tooMany and full may concern one item alone: how much it sends at once, how large it is.
	tooMany      = Ruling{Class: ChannelTransient, Reason: attachment.HoldServerBusy, Confirm: true}
	serverFails  = Ruling{Class: ItemTransient, Reason: attachment.HoldServerError, Charge: true, Confirm: true, Repeats: 1}
	outOfStep    = Ruling{Class: ItemTransient, Reason: attachment.HoldBackoff, Charge: true, Repeats: 3}
	lockedOut    = Ruling{Class: ItemTransient, Reason: attachment.HoldServerBusy, Repeats: 3}
	gone         = Ruling{Class: ItemTransient, Reason: attachment.HoldServerError, Charge: true, Repeats: 1}
	smaller      = Ruling{Class: ItemTransient, Reason: attachment.HoldBackoff, Charge: true, Shrink: true}
	incompatible = Ruling{Class: ChannelOperator, Reason: attachment.HoldServerError}
	badToken     = Ruling{Class: ChannelOperator, Reason: attachment.HoldCredentials}
	noToken      = Ruling{Class: ChannelOperator, Reason: attachment.HoldCredentialUnusable}
	full         = Ruling{Class: ChannelOperator, Reason: attachment.HoldServerFull, Confirm: true}
	forbidden    = Ruling{Class: ItemPermanent, Reason: attachment.NeedsForbidden, Charge: true, Confirm: true}
	refused      = Ruling{Class: ItemPermanent, Reason: attachment.NeedsRefused, Charge: true, Confirm: true}
)

// attention is a refusal that names this item: a person is needed, and no other item is concerned.
func attention(reason attachment.Code) Ruling {
	return Ruling{Class: ItemPermanent, Reason: reason, Charge: true}
}

// rules is the table. Permanent classes, and the operator's, need an answer in our protocol: whatever stands between
// device and server can hold up the channel, and cannot give up an item.
var rules = []rule{
	// Found on the device.
	{kinds: []Kind{KindCancelled}, is: Ruling{Class: Cancelled}},
	{kinds: []Kind{KindCredential}, is: noToken},
	{kinds: []Kind{KindCertificate}, is: Ruling{Class: ChannelOperator, Reason: attachment.HoldCertificate}},
	{kinds: []Kind{KindRequest}, is: attention(attachment.NeedsRefused)},
	{kinds: []Kind{KindUnread}, is: Ruling{Class: ItemTransient, Reason: attachment.HoldBackoff, Charge: true}},
	{kinds: []Kind{KindMissing}, is: attention(attachment.NeedsPayloadMissing)},
	{kinds: []Kind{KindChanged}, is: attention(attachment.NeedsPayloadChanged)},

	// No answer.
	{kinds: []Kind{KindConnect}, is: Ruling{Class: ChannelTransient, Reason: attachment.HoldOffline}},
	{kinds: []Kind{KindTLS}, is: Ruling{Class: ChannelOperator, Reason: attachment.HoldTLS}},
	{kinds: []Kind{KindProxy}, from: 500, to: 599, is: Ruling{Class: ChannelTransient, Reason: attachment.HoldOffline}},
	{kinds: []Kind{KindProxy}, is: Ruling{Class: ChannelOperator, Reason: attachment.HoldProxy}},
	{kinds: []Kind{KindMoved}, is: Ruling{Class: ItemTransient, Reason: attachment.HoldOffline, Repeats: 3}},
	{kinds: []Kind{KindBroken}, is: Ruling{
		Class: ItemTransient, Reason: attachment.HoldOffline, Charge: true, Confirm: true, Repeats: 3}},
	{kinds: []Kind{KindStalled}, is: Ruling{
		Class: ItemTransient, Reason: attachment.HoldOffline, Charge: true, Confirm: true, Repeats: 1}},
	{kinds: []Kind{KindSilent}, is: serverFails},

	// Answers of our server that speak of something else, or put us off.
	{steps: []Step{StepRegister}, kinds: []Kind{KindMismatch}, is: attention(attachment.NeedsReceiptMismatch)},
	{kinds: []Kind{KindMismatch}, is: Ruling{
		Class: ItemTransient, Reason: attachment.HoldServerError, Charge: true, Repeats: 2}},
	{kinds: []Kind{KindPending}, is: Ruling{Class: ItemTransient, Reason: attachment.HoldWaitingParent}},

	// Answers of something else: a proxy in front of our server, a portal, another server.
	{steps: []Step{StepAppend}, kinds: foreign, from: 413, to: 413, smallest: true, is: notOurServer},
	{steps: []Step{StepAppend}, kinds: foreign, from: 413, to: 413, is: smaller},
	{kinds: foreign, from: 408, to: 408, is: serverFails},
	{kinds: foreign, from: 429, to: 429, is: Ruling{Class: ChannelTransient, Reason: attachment.HoldServerBusy, Confirm: true}},
	{kinds: foreign, from: 503, to: 503, waits: true, is: Ruling{
		Class: ChannelTransient, Reason: attachment.HoldServerBusy, Confirm: true}},
	{kinds: foreign, from: 500, to: 504, is: serverFails},
	{kinds: foreign, is: notOurServer},

	// Refusals of our server, by their code.
	{codes: []wire.Code{wire.CodeCredentials}, is: badToken},
	{steps: []Step{StepProbe}, codes: []wire.Code{wire.CodeForbidden, wire.CodeTakeoverDenied}, is: badToken},
	{codes: []wire.Code{wire.CodeForbidden}, is: forbidden},
	{codes: []wire.Code{wire.CodeTakeoverDenied}, is: attention(attachment.NeedsTakeover)},
	{codes: []wire.Code{wire.CodeIdentityConflict}, is: attention(attachment.NeedsIdentityConflict)},
	{codes: []wire.Code{wire.CodeSizeLimit}, is: attention(attachment.NeedsSizeLimit)},
	{codes: []wire.Code{wire.CodeMediaType}, is: attention(attachment.NeedsMediaType)},
	{codes: []wire.Code{wire.CodeParentPolicy}, is: attention(attachment.NeedsParentPolicy)},
	{codes: []wire.Code{wire.CodeAppendLimit}, smallest: true, is: attention(attachment.NeedsRefused)},
	{steps: []Step{StepAppend}, codes: []wire.Code{wire.CodeAppendLimit}, is: smaller},
	{codes: []wire.Code{CodeFinal}, from: 500, to: 599, is: serverFails},
	{codes: []wire.Code{CodeFinal}, is: refused},
	{codes: []wire.Code{wire.CodeOffsetMismatch, wire.CodeChecksum, wire.CodeDigestField, wire.CodeLength}, is: outOfStep},
	{codes: []wire.Code{wire.CodeBusy}, is: lockedOut},
	{codes: []wire.Code{wire.CodeNotVerified, wire.CodeDigestMismatch}, is: gone},
	{steps: []Step{StepProbe, StepReserve}, codes: []wire.Code{wire.CodeNotFound}, is: serverFails},
	{codes: []wire.Code{wire.CodeSessionGone, wire.CodeNotFound}, is: gone},
	{codes: []wire.Code{wire.CodeTusVersion, CodeSetup}, is: incompatible},
	{codes: []wire.Code{wire.CodeTooMany}, is: tooMany},
	{codes: []wire.Code{wire.CodeShuttingDown}, is: serverBusy},
	{codes: []wire.Code{wire.CodeServerFull}, is: full},
	{codes: []wire.Code{wire.CodeInternal, wire.CodeMethod}, is: serverFails},
	{steps: atSession, codes: []wire.Code{wire.CodeInvalid}, is: serverFails},
	{codes: []wire.Code{wire.CodeInvalid}, is: refused},

	// Refusals of our server whose code this version does not know, and answers to HEAD, which have no body.
	{kinds: problem, from: 401, to: 401, is: badToken},
	{steps: []Step{StepProbe}, kinds: problem, from: 403, to: 403, is: badToken},
	{steps: []Step{StepProbe, StepReserve}, kinds: problem, from: 404, to: 404, is: serverFails},
	{kinds: problem, from: 404, to: 404, is: gone},
	{kinds: problem, from: 410, to: 410, is: gone},
	{kinds: problem, from: 405, to: 405, is: serverFails},
	{kinds: problem, from: 408, to: 408, is: serverFails},
	{kinds: problem, from: 409, to: 409, is: outOfStep},
	{kinds: problem, from: 412, to: 412, is: incompatible},
	{steps: []Step{StepAppend}, kinds: problem, from: 413, to: 413, smallest: true, is: attention(attachment.NeedsRefused)},
	{steps: []Step{StepAppend}, kinds: problem, from: 413, to: 413, is: smaller},
	{kinds: problem, from: 423, to: 423, is: lockedOut},
	{kinds: problem, from: 425, to: 425, is: serverFails},
	{kinds: problem, from: 429, to: 429, is: tooMany},
	{kinds: problem, from: 460, to: 460, is: outOfStep},
	{steps: []Step{StepOffset}, kinds: problem, from: 400, to: 499, is: serverFails},
	{kinds: problem, from: 403, to: 403, is: forbidden},
	{kinds: problem, from: 400, to: 499, is: refused},
	{kinds: problem, from: 503, to: 503, waits: true, is: serverBusy},
	{kinds: problem, from: 507, to: 507, is: full},
	{kinds: problem, from: 500, to: 599, is: serverFails},

	{is: notOurServer},
}
