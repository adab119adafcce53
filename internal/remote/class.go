package remote

// Step is the part of the conversation in which something happened. Persisted as text.
type Step string

// The steps. Probe asks for the server's status and belongs to no item.
const (
	StepProbe    Step = "probe"
	StepReserve  Step = "reserve"
	StepOffset   Step = "offset"
	StepAppend   Step = "append"
	StepVerify   Step = "verify"
	StepRegister Step = "register"
	StepCancel   Step = "cancel"
)

// Steps lists every step.
func Steps() []Step {
	return []Step{StepProbe, StepReserve, StepOffset, StepAppend, StepVerify, StepRegister, StepCancel}
}

// Class says whom a failure concerns and whether a person is needed. Persisted as text.
type Class string

// The classes of failures.
const (
	// ItemTransient: the item is tried again by the schedule.
	ItemTransient Class = "item_transient"
	// ItemPermanent: the item needs a person; its bytes are kept and its lane is freed.
	ItemPermanent Class = "item_permanent"
	// ChannelTransient: everything waits, and goes on by itself.
	ChannelTransient Class = "channel_transient"
	// ChannelOperator: everything waits until a person mends something; probed slowly meanwhile.
	ChannelOperator Class = "channel_operator"
	// Held: a hold ended the request. No failure of anybody.
	Held Class = "held"
	// Cancelled: the caller ended the request. No failure of anybody.
	Cancelled Class = "cancelled"
	// Local: this program failed, not the network, the server or the item. Only ClassOf gives it.
	Local Class = "local"
)

// Kind is what was seen, before it is judged. Persisted as text.
type Kind string

// The kinds. The first four are answers, the next eight the lack of one, the others were found on the device.
const (
	// KindProblem: a refusal in our protocol; Status and mostly Problem say which.
	KindProblem Kind = "problem"
	// KindForeign: an answer that is not our protocol: no mark, no problem document, or no sense.
	KindForeign Kind = "foreign"
	// KindMismatch: an answer in our protocol that speaks of something else than was asked.
	KindMismatch Kind = "mismatch"
	// KindPending: the server took note and wants to be asked again (202).
	KindPending Kind = "pending"

	// KindConnect: no connection: name, route, refusal, handshake.
	KindConnect Kind = "connect"
	// KindTLS: the server's certificate is not accepted.
	KindTLS Kind = "tls"
	// KindProxy: the proxy on the way did not let the connection through; Status is its answer to CONNECT.
	KindProxy Kind = "proxy"
	// KindMoved: the connection was ended because the way to the server changed.
	KindMoved Kind = "moved"
	// KindBroken: a connection broke before the whole answer was there.
	KindBroken Kind = "broken"
	// KindStalled: no byte moved for the idle timeout.
	KindStalled Kind = "stalled"
	// KindSilent: the request was sent and no whole answer came within the answer's timeout.
	KindSilent Kind = "silent"
	// KindCancelled: the caller's context ended.
	KindCancelled Kind = "cancelled"

	// KindCredential: there is no usable credential.
	KindCredential Kind = "credential"
	// KindCertificate: the device's own certificate cannot be used, or the server ends the connection because of it.
	KindCertificate Kind = "certificate"
	// KindRequest: the request cannot be expressed in the protocol.
	KindRequest Kind = "request"
	// KindUnread: the bytes to send could not be read; it may work next time.
	KindUnread Kind = "unread"
	// KindMissing: the bytes to send are gone.
	KindMissing Kind = "missing"
	// KindChanged: the bytes to send are not the recorded ones.
	KindChanged Kind = "changed"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{
		KindProblem, KindForeign, KindMismatch, KindPending, KindConnect, KindTLS, KindProxy, KindMoved, KindBroken,
		KindStalled, KindSilent, KindCancelled, KindCredential, KindCertificate, KindRequest, KindUnread, KindMissing, KindChanged,
	}
}
