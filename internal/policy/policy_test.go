package policy

import (
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

const mib = 1 << 20

// Capture stops below the reserve, does not flap at its edge, counts the need, and holds when nothing is known.
func TestCapture(t *testing.T) {
	rules := Storage{WarnFree: 64 * mib, Reserve: 32 * mib}
	disk := func(free uint64) Disk { return Disk{Known: true, FreeBytes: free} }
	for name, c := range map[string]struct {
		disk    Disk
		need    uint64
		blocked bool
		code    attachment.Code
		state   StorageState
	}{
		"plenty":             {disk(500 * mib), 10 * mib, false, "", StorageOK},
		"warn":               {disk(60 * mib), 10 * mib, false, "", StorageWarn},
		"below reserve":      {disk(31 * mib), 0, false, attachment.HoldStorageReserve, StorageReserve},
		"edge, not blocked":  {disk(33 * mib), 0, false, "", StorageWarn},
		"edge, blocked":      {disk(33 * mib), 0, true, attachment.HoldStorageReserve, StorageReserve},
		"freed":              {disk(37 * mib), 0, true, "", StorageWarn},
		"need exceeds":       {disk(100 * mib), 80 * mib, false, attachment.HoldStorageReserve, StorageOK},
		"unknown":            {Disk{}, 0, false, attachment.HoldStorageUnknown, StorageUnknown},
		"no inodes":          {Disk{Known: true, FreeBytes: 500 * mib, InodesTotal: 1000, InodesFree: 3}, 0, false, attachment.HoldStorageReserve, StorageReserve},
		"inodes not counted": {Disk{Known: true, FreeBytes: 500 * mib}, 0, false, "", StorageOK},
	} {
		hold, state := Capture(c.disk, rules, c.need, c.blocked)
		if got := code(hold); got != c.code || state != c.state {
			t.Errorf("%s: hold %q, state %s; want %q, %s", name, got, state, c.code, c.state)
		}
	}
}

func code(h *Hold) attachment.Code {
	if h == nil {
		return ""
	}
	return h.Code
}

// The holds of sending have one order of precedence.
func TestSendPrecedence(t *testing.T) {
	for _, c := range []struct {
		in   Sending
		want attachment.Code
	}{
		{Sending{Configured: true}, ""},
		{Sending{Configured: true, ItemPaused: true}, attachment.HoldPaused},
		{Sending{Configured: true, ItemPaused: true, ChannelPaused: true}, attachment.HoldChannelPaused},
		{Sending{ItemPaused: true, ChannelPaused: true}, attachment.HoldNotConfigured},
	} {
		if got := code(Send(c.in)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.in, got, c.want)
		}
	}
}
