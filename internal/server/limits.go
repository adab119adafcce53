package server

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Limits bound what clients may ask. A zero field means its default.
type Limits struct {
	// MaxLength is the largest attachment, in bytes; at most wire.MaxLength, which is the default.
	MaxLength int64
	// MaxAppend is the largest body of an append with a checksum, in bytes; 8 MiB.
	MaxAppend int64
	// Confirm is after how many bytes a lasting append is confirmed, if a second has not passed before; 8 MiB.
	Confirm int64
	// AppendsPerDevice bounds the appends of one device that move at the same time; 16, the most workers a device can have.
	AppendsPerDevice int
	// SessionsPerAccount bounds the open upload sessions of one account; 4096.
	SessionsPerAccount int
	// Verifications bounds the files that are read back at the same time; 2.
	Verifications int
	// Idle ends an append in which no byte arrived for this long; 30 s.
	Idle time.Duration
	// Answer bounds the time that the client takes to read each piece of an answer; 30 s.
	Answer time.Duration
	// ControlBody bounds the time that a whole control-plane body may take; 30 s.
	ControlBody time.Duration
	// Header bounds the time that a request's header may take; 10 s.
	Header time.Duration
	// KeepAlive bounds the time that a connection waits for its next request; 2 min.
	KeepAlive time.Duration
	// Drain bounds the time that requests under way get when the server stops, before appends are cut; 10 s.
	Drain time.Duration
	// Expire ends an upload session in which no byte was confirmed for this long; 7 days.
	Expire time.Duration
	// KeepFree is how many bytes of the volume reservations leave alone; 64 MiB.
	KeepFree int64
}

const (
	// maxHeaderBytes bounds a request's header.
	maxHeaderBytes = 32 << 10
	// discardTime bounds how long the rest of a body is read after its answer, so that the connection can be kept.
	discardTime = 5 * time.Second
	// tidyTime is the longest time between two looks through the open upload sessions.
	tidyTime = 10 * time.Minute
	// cutTime bounds how long appends that were cut take to confirm their prefix.
	cutTime = 10 * time.Second
	// listLimit is the largest page of a list; listBytes cuts a page earlier.
	listLimit = 100
	listBytes = wire.MaxControlBody / 2
)

func (l Limits) withDefaults() Limits {
	size := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	count := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	period := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	size(&l.MaxLength, wire.MaxLength)
	l.MaxLength = min(l.MaxLength, wire.MaxLength)
	size(&l.MaxAppend, 8<<20)
	size(&l.Confirm, 8<<20)
	size(&l.KeepFree, 64<<20)
	count(&l.AppendsPerDevice, 16)
	count(&l.SessionsPerAccount, 4096)
	count(&l.Verifications, 2)
	period(&l.Idle, 30*time.Second)
	period(&l.Answer, 30*time.Second)
	period(&l.ControlBody, 30*time.Second)
	period(&l.Header, 10*time.Second)
	period(&l.KeepAlive, 2*time.Minute)
	period(&l.Drain, 10*time.Second)
	period(&l.Expire, 7*24*time.Hour)
	return l
}

// upload is the part of the data plane; room measures the free bytes of the volume.
func (l Limits) upload(room func() (int64, error)) upload.Limits {
	return upload.Limits{
		MaxAppend: l.MaxAppend, Confirm: l.Confirm, Idle: l.Idle, AppendsPerDevice: l.AppendsPerDevice, Verifications: l.Verifications,
		MaxLength: l.MaxLength, SessionsPerAccount: l.SessionsPerAccount, Expire: l.Expire,
		Room: func() (int64, error) {
			free, err := room()
			return free - l.KeepFree, err
		},
	}
}
