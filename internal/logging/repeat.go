package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	repeatEvery    = 10              // failures between two records
	repeatInterval = 5 * time.Minute // or time between them
	maxRepeatKeys  = 1024            // failures told apart
	repeatForget   = time.Hour       // a failure not seen for so long makes room for others
)

// Repeat thins the log of failures that come again and again: it writes the first at Warn, then every tenth or one in
// five minutes with the number so far, and one Info "recovered" when it is over. The zero value is ready; methods may
// be called from several goroutines.
//
// It tells at most 1024 failures apart. Beyond that it drops those not seen for an hour, and counts what is still too
// many as one failure, so that a thousand and one broken files cannot flood the log either.
type Repeat struct {
	mu    sync.Mutex
	known map[string]*repeated
	rest  repeated // all keys beyond maxRepeatKeys
}

// repeated is one failure that lasts.
type repeated struct {
	msg    string
	count  int       // since it began
	since  time.Time // when it began
	last   time.Time // when it was seen last
	logged time.Time // when it was written last
	unsaid int       // failures since then
}

// Fail counts one more failure of what key names (an attachment and a step, a watch, a host) and logs it when it is
// due, with msg, attrs and, from the second on, KeyCount. msg is a static sentence, as in every record.
func (r *Repeat) Fail(ctx context.Context, logger *slog.Logger, key, msg string, attrs ...slog.Attr) {
	due, count := r.fail(key, msg, time.Now())
	if !due {
		return
	}
	if count > 1 {
		attrs = append(attrs[:len(attrs):len(attrs)], slog.Int(KeyCount, count))
	}
	logger.LogAttrs(ctx, slog.LevelWarn, msg, attrs...)
}

// Recovered ends the failure of what key names and logs that, with the failure's message as KeyFailure, the number of
// failures as KeyCount and how long it lasted as KeyDuration. Without a failure it does nothing, so that it can follow
// every success.
func (r *Repeat) Recovered(ctx context.Context, logger *slog.Logger, key string, attrs ...slog.Attr) {
	r.mu.Lock()
	f, failing := r.known[key]
	delete(r.known, key)
	r.mu.Unlock()
	if !failing {
		return
	}
	attrs = append(attrs[:len(attrs):len(attrs)], slog.String(KeyFailure, f.msg), slog.Int(KeyCount, f.count),
		slog.Duration(KeyDuration, time.Since(f.since)))
	logger.LogAttrs(ctx, slog.LevelInfo, "recovered", attrs...)
}

// fail counts a failure and says whether to write it.
func (r *Repeat) fail(key, msg string, now time.Time) (due bool, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.entry(key, now)
	f.msg, f.last = msg, now
	f.count++
	f.unsaid++
	due = f.count == 1 || f.unsaid >= repeatEvery || now.Sub(f.logged) >= repeatInterval
	if due {
		f.unsaid, f.logged = 0, now
	}
	return due, f.count
}

// entry returns the failure of a key, the common one when there is no room.
func (r *Repeat) entry(key string, now time.Time) *repeated {
	if f, ok := r.known[key]; ok {
		return f
	}
	if r.known == nil {
		r.known = map[string]*repeated{}
	}
	if len(r.known) >= maxRepeatKeys {
		for k, f := range r.known {
			if now.Sub(f.last) >= repeatForget {
				delete(r.known, k)
			}
		}
	}
	if len(r.known) >= maxRepeatKeys {
		if now.Sub(r.rest.last) >= repeatForget {
			r.rest = repeated{since: now}
		}
		return &r.rest
	}
	f := &repeated{since: now}
	r.known[key] = f
	return f
}
