package control

import (
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// The triggers: what makes a wait end other than a time. The list may grow.
const (
	TriggerTurn          = "turn"          // the work before it
	TriggerTime          = "time"          // NextAttempt
	TriggerNetwork       = "network"       // a change of the network
	TriggerConfiguration = "configuration" // a change of configuration, credential or certificate
	TriggerPerson        = "person"        // a decision
	TriggerSpace         = "space"         // free space
	TriggerFile          = "file"          // a change of the file or its directory
	TriggerService       = "service"       // a repair of fieldgwd's own state
)

// Waiting says why something waits: an item, the channel to the server, a path that was not taken, or capture as a whole.
type Waiting struct {
	Reason attachment.Code `json:"reason"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// Detail is the cause behind Message in one printable line of at most MaxDetail bytes, such as "connection refused";
	// empty where Message says it all.
	Detail string `json:"detail,omitempty"`
	// Since is when this reason began.
	Since time.Time `json:"since,omitzero"`
	// Rule is the configuration key or policy rule that asks for the wait, where there is one.
	Rule string `json:"rule,omitempty"`
	// NextAttempt is when it is tried next; absent when no time is planned.
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	// NextTrigger is one of the triggers: what ends the wait.
	NextTrigger string `json:"next_trigger,omitempty"`
	// Unblock lists what people can do; the first is the best.
	Unblock []Unblock `json:"unblock"`
}

// Unblock is one thing that somebody can do.
type Unblock struct {
	Who    attachment.Who `json:"who"`
	Action string         `json:"action"`
	// Command is what to type, complete; empty where typing does not help.
	Command string `json:"command,omitempty"`
}

// needsPerson are the channel's reasons that do not pass by themselves. A pause is a decision that somebody took, so it is
// not among them.
var needsPerson = map[attachment.Code]bool{
	attachment.HoldNotConfigured:      true,
	attachment.HoldNotOurServer:       true,
	attachment.HoldCredentials:        true,
	attachment.HoldCredentialUnusable: true,
	attachment.HoldTLS:                true,
	attachment.HoldCertificate:        true,
	attachment.HoldProxy:              true,
	attachment.HoldServerFull:         true,
	attachment.HoldClockUnset:         true,
}

// NeedsPerson reports whether the channel waits for something that does not come by itself.
func (w *Waiting) NeedsPerson() bool { return needsPerson[w.Reason] }

// Why makes the structure for a code from the code's advice. With an id, commands name it; without one, a command that
// needs an ID is left out. Detail, Rule and NextAttempt are the caller's to add.
func Why(code attachment.Code, id attachment.ID, since time.Time) *Waiting {
	advice := attachment.Explain(code)
	command := advice.Command
	if general, one := strings.CutSuffix(command, " ID"); one {
		command = general + " " + string(id)
		if id == "" {
			command = ""
		}
	}
	return &Waiting{
		Reason:      code,
		Message:     advice.Sentence,
		Since:       since,
		NextTrigger: trigger(advice),
		Unblock:     []Unblock{{Who: advice.Who, Action: advice.Remedy, Command: command}},
	}
}

var triggers = map[attachment.Code]string{
	attachment.HoldQueued:             TriggerTurn,
	attachment.HoldBackoff:            TriggerTime,
	attachment.HoldPaused:             TriggerPerson,
	attachment.HoldGrade:              TriggerPerson,
	attachment.HoldChannelPaused:      TriggerPerson,
	attachment.HoldNotConfigured:      TriggerConfiguration,
	attachment.HoldOffline:            TriggerNetwork,
	attachment.HoldNotOurServer:       TriggerNetwork,
	attachment.HoldCredentials:        TriggerConfiguration,
	attachment.HoldCredentialUnusable: TriggerConfiguration,
	attachment.HoldTLS:                TriggerConfiguration,
	attachment.HoldStorageReserve:     TriggerSpace,
	attachment.HoldStorageUnknown:     TriggerSpace,
	attachment.HoldDeviceFull:         TriggerSpace,
	attachment.HoldSidecar:            TriggerFile,
	attachment.HoldOutsideWindow:      TriggerTime,
	attachment.HoldClockUnset:         TriggerPerson,
	attachment.NotTakenPermission:     TriggerConfiguration,
	attachment.NotTakenStorage:        TriggerSpace,
	attachment.NotTakenQueue:          TriggerService,
	attachment.NotTakenQueueFull:      TriggerService,
	attachment.NotTakenNotWatched:     TriggerTime,
	attachment.NotTakenRepeated:       TriggerConfiguration,
}

func trigger(advice attachment.Advice) string {
	if t, ok := triggers[advice.Code]; ok {
		return t
	}
	switch advice.Kind {
	case attachment.KindAttention:
		return TriggerPerson
	case attachment.KindNotTaken:
		return TriggerFile
	}
	return TriggerTime
}
