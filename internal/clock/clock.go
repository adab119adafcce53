// Package clock answers the two questions a gateway without a reliable clock has to ask: how long has this machine
// been running, and may the wall clock be believed. It promises that running time never jumps, counts sleep, and
// belongs to one boot, which BootID names; and that what is said about the wall clock rests on evidence.
//
// Running time and boot come from the kernel, so testing/synctest does not fake them: callers that are tested in a
// bubble take them as functions.
package clock

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// started stands in for the boot where the kernel does not tell.
var started = time.Now()

// Running returns the time since the machine booted, suspension included (CLOCK_BOOTTIME, clock_gettime(2)). It never
// goes backwards within a boot, and values of different boots must not be compared.
//
// The clock exists in every kernel that Go supports. In a sandbox that forbids it, Running counts from the start of
// the process instead, and without suspension.
func Running() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}

// BootID returns the kernel's random name for this boot (random(4), /proc/sys/kernel/random/boot_id), a UUID in lower
// case. Its error is ErrNoBootID.
func BootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoBootID, err)
	}
	id, ok := parseBootID(data)
	if !ok {
		return "", fmt.Errorf("%w: %s holds no UUID", ErrNoBootID, path)
	}
	return id, nil
}

// parseBootID accepts the textual form of RFC 9562 §4 in lower case, with the line end the kernel adds.
func parseBootID(data []byte) (string, bool) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if len(data) != 36 {
		return "", false
	}
	for i, c := range data {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (c == '-') || !hyphen && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return string(data), true
}
