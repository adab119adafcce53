package intake

import (
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Medium is the card or filesystem that a source lies on.
type Medium struct {
	// Name tells it from others, also after it was away: the kind of the name, a colon and the name. Empty: not known.
	Name string
	// Device is the device number that it has now.
	Device uint64
	// Fleeting: the numbers of its files do not survive a remount, as on FAT.
	Fleeting bool
}

// mediumOf returns the medium of a path, whose file is known to be on a device. A name that belongs to another device is
// another mount's: the card was changed meanwhile, or something is mounted below the root.
func (in *Intake) mediumOf(watch, path string, device uint64) Medium {
	m := in.Medium(watch, path)
	if m.Device != device {
		m.Name, m.Device = "", device
	}
	return m
}

// same reports whether this is the medium with the recorded name. known is false when that cannot be told: one of the
// names is missing, or they are of different kinds, since the configuration was changed.
func (m Medium) same(recorded string) (same, known bool) {
	kind, _, ok := strings.Cut(recorded, ":")
	if !ok || !strings.HasPrefix(m.Name, kind+":") {
		return false, false
	}
	return m.Name == recorded, true
}

// maybe reports whether a file may be the one that a source was on the medium with the recorded name, when only its description is compared: device numbers
// change when a volume is mounted again, and on some media so do the numbers of files and, by whole quarters of an hour,
// the times, which are kept in local time. Only reading it tells more.
func (m Medium) maybe(got, want attachment.SourceIdentity, recorded string) bool {
	got.Device = want.Device
	if got == want {
		return true
	}
	same, _ := m.same(recorded)
	return same && m.Fleeting && got.Size == want.Size && zoneShift(got.MTimeNS, want.MTimeNS)
}

// zoneShift reports whether two times differ by what two time zones can.
func zoneShift(a, b int64) bool {
	const largest, step = 26 * time.Hour, 15 * time.Minute
	d := time.Duration(a - b).Abs()
	return d <= largest && d%step == 0
}

// clockless is before any camera's time: without a clock they begin at 1970 or 1980, again and again.
var clockless = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
