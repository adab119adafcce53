package clock

import "errors"

// ErrNoBootID is returned when the kernel's boot ID cannot be read or is none, as with ProcSubset=pid
// (systemd.exec(5)).
var ErrNoBootID = errors.New("no boot ID")
