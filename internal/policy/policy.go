// Package policy decides whether fieldgw may capture or send now. It is pure: readings, rules and the time go in, a
// verdict comes out. The daemon copies sensor readings into Inputs; policy knows no sensor.
//
// Unknown is a value: a reading that is not known is treated as the rule says, never as zero.
package policy

import (
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Disk is what is known of the volume that holds the spool.
type Disk struct {
	Known bool
	// FreeBytes is what a process without privileges can still write.
	FreeBytes uint64
	// InodesFree counts only when InodesTotal is not 0: some filesystems have no fixed number.
	InodesFree, InodesTotal uint64
}

// Storage are the rules about space, in bytes.
type Storage struct {
	// WarnFree: below it people are told. Reserve: below it nothing new is captured.
	WarnFree, Reserve uint64
}

// Resume factor: capture goes on when free space exceeds the reserve by an eighth, so that it does not flap.
const resumeDivisor = 8

// minInodes is the number of free inodes below which nothing new is captured: an adoption makes two files.
const minInodes = 64

// Hold is a reason that stops capturing or sending now.
type Hold struct {
	Code attachment.Code
	// Rule names the configuration key or decision that the hold comes from.
	Rule   string
	Detail string
	// Ends says what lifts it, Until when that will be; zero where no time is known.
	Ends  string
	Until time.Time
}

// StorageState is how much room there is.
type StorageState string

// The states of storage.
const (
	StorageOK      StorageState = "ok"
	StorageWarn    StorageState = "warn"
	StorageReserve StorageState = "reserve"
	StorageUnknown StorageState = "unknown"
)

// Capture decides whether an adoption that needs the given number of bytes may begin. blocked is the verdict before, for
// hysteresis. An unknown reading holds: taking custody without knowing that there is room risks the queue itself.
func Capture(d Disk, rules Storage, need uint64, blocked bool) (*Hold, StorageState) {
	if !d.Known {
		return &Hold{
			Code: attachment.HoldStorageUnknown, Rule: "storage.reserve", Detail: "free space is not known",
			Ends: "a reading of the volume",
		}, StorageUnknown
	}
	floor := rules.Reserve
	if blocked {
		floor += rules.Reserve / resumeDivisor
	}
	hold := func(detail string) *Hold {
		return &Hold{Code: attachment.HoldStorageReserve, Rule: "storage.reserve", Detail: detail, Ends: "free space above the reserve"}
	}
	switch {
	case d.FreeBytes < floor:
		return hold(fmt.Sprintf("%d bytes free, %d are kept in reserve", d.FreeBytes, rules.Reserve)), StorageReserve
	case d.InodesTotal > 0 && d.InodesFree < minInodes:
		return hold(fmt.Sprintf("%d inodes free", d.InodesFree)), StorageReserve
	case d.FreeBytes-floor < need:
		return hold(fmt.Sprintf("%d bytes needed, %d free above the reserve", need, d.FreeBytes-floor)), state(d, rules)
	}
	return nil, state(d, rules)
}

func state(d Disk, rules Storage) StorageState {
	if d.FreeBytes < rules.WarnFree {
		return StorageWarn
	}
	return StorageOK
}

// Sending is what is known when something is about to be sent.
type Sending struct {
	// Configured: an endpoint and a credential are there.
	Configured bool
	// ChannelPaused and ItemPaused are people's decisions.
	ChannelPaused, ItemPaused bool
	// Windows are the times in which it may be sent; none means always. Now is on the device's clock and in its zone.
	Windows Windows
	Now     time.Time
	// ClockDoubt is why the clock cannot be right; empty where nothing speaks against it.
	ClockDoubt string
	// StorageShort: free space is below the warning, so that what can leave must.
	StorageShort bool
	// AtFront: a person put it to the front, whatever the time.
	AtFront bool
}

// Send returns the first hold that forbids sending, in the order of precedence: configuration, then the channel's
// decisions, then the windows, then the item's decisions. nil allows.
func Send(s Sending) *Hold {
	switch {
	case !s.Configured:
		return &Hold{Code: attachment.HoldNotConfigured, Rule: "uplink.endpoint", Ends: "a configuration with endpoint and credential"}
	case s.ChannelPaused:
		return &Hold{Code: attachment.HoldChannelPaused, Rule: "decision", Ends: "fieldgwctl resume"}
	}
	if h := outside(s); h != nil {
		return h
	}
	if s.ItemPaused {
		return &Hold{Code: attachment.HoldPaused, Rule: "decision", Ends: "fieldgwctl resume ID"}
	}
	return nil
}

// outside holds what the windows keep back. By a clock that cannot be right nobody knows whether one is open.
func outside(s Sending) *Hold {
	const rule = "uplink.windows"
	switch {
	case len(s.Windows) == 0 || s.StorageShort || s.AtFront:
		return nil
	case s.ClockDoubt != "":
		return &Hold{Code: attachment.HoldClockUnset, Rule: rule, Detail: s.ClockDoubt, Ends: "a clock that is set"}
	case s.Windows.Open(s.Now):
		return nil
	}
	h := &Hold{Code: attachment.HoldOutsideWindow, Rule: rule, Ends: "a change of uplink.windows", Until: s.Windows.Next(s.Now)}
	if !h.Until.IsZero() {
		h.Ends = "the next opening, " + h.Until.Format("Mon 2006-01-02 15:04 MST")
	}
	return h
}

// OfWindow reports whether the hold is the windows'.
func (h *Hold) OfWindow() bool {
	return h != nil && (h.Code == attachment.HoldOutsideWindow || h.Code == attachment.HoldClockUnset)
}
