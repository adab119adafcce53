package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// Limits of one transaction and of what waits for the next.
const (
	maxBatch      = 256     // requests in one transaction, and waiting in the queue
	maxBatchBytes = 1 << 20 // of keys and values, after which no further request is started
)

// request is one Update.
type request struct {
	fn       func(*Tx) error
	state    atomic.Int32
	done     chan outcome // holds one
	handlers []func()     // of the run that is being committed
}

const (
	waiting int32 = iota
	started
	withdrawn
)

// outcome answers a request: committed, or an error, or a panic of its own function.
type outcome struct {
	err      error
	panicked *PanicError
}

func (r *request) answer(o outcome) { r.done <- o }

// begin claims the request for the writer; it may be claimed again for another run.
func (r *request) begin() bool {
	return r.state.CompareAndSwap(waiting, started) || r.state.Load() == started
}

func (r *request) withdraw() bool { return r.state.CompareAndSwap(waiting, withdrawn) }

func answerAll(rs []*request, err error) {
	for _, r := range rs {
		if r.begin() {
			r.answer(outcome{err: err})
		}
	}
}

// Update runs fn in a read-write transaction on the store's one writer goroutine and returns after the commit, when all
// that fn wrote is durable. Whatever waits at that moment shares the transaction, in the order in which it came.
//
// When fn returns an error its changes are dropped, Update returns that error, and the others in the transaction are run
// again without it: so fn may run more than once, must touch nothing but tx and its own results, and resets those at its
// beginning. It must not call Update, View or Close on the same store. A panic of fn rolls back in the same way and is
// raised again, as a *PanicError, on the goroutine that called Update.
//
// A ctx that ends before fn was started makes Update return ctx.Err() with nothing done; once fn runs, Update waits for
// the outcome. A compaction, which comes between two transactions, makes all that are queued wait until it is done. Errors
// of its own: ErrNoSpace (rolled back, the store goes on; with ErrFull where the permitted size is the limit), ErrClosed,
// and those with which the store fails: ErrUnknownOutcome, ErrDamaged, ErrAborted.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	return s.submit(ctx.Done(), ctx.Err, fn)
}

// submit queues fn and waits for its outcome, or for cancelled to say that it is no longer wanted.
func (s *Store) submit(cancelled <-chan struct{}, cause func() error, fn func(*Tx) error) error {
	r := &request{fn: fn, done: make(chan outcome, 1)}
	select {
	case s.queue <- r:
	case <-cancelled:
		return cause()
	case <-s.writerDone:
		return s.ended()
	case <-s.abandoned:
		return s.Err()
	}
	select {
	case o := <-r.done:
		return o.result()
	case <-cancelled:
		if r.withdraw() {
			return cause()
		}
	case <-s.writerDone:
	case <-s.abandoned:
	}
	select {
	case o := <-r.done:
		return o.result()
	case <-s.writerDone:
	case <-s.abandoned:
	}
	// The writer will not answer any more, unless it just did.
	select {
	case o := <-r.done:
		return o.result()
	default:
	}
	err := s.ended()
	if r.withdraw() || errors.Is(err, ErrAborted) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

func (o outcome) result() error {
	if o.panicked != nil {
		reraise(o.panicked)
	}
	return o.err
}

// write is the writer goroutine.
func (s *Store) write() {
	returned := false
	defer func() {
		if !returned {
			s.abandon(ErrAborted)
		}
		close(s.writerDone)
	}()
	debug.SetPanicOnFault(true)
	var batch []*request
	for {
		if batch = s.collect(batch); len(batch) == 0 {
			break
		}
		batch = s.run(batch)
		s.tend()
	}
	returned = true
}

// collect waits for a request and takes what else is there, without delay. It returns nothing once the store is closing
// and the queue is empty.
func (s *Store) collect(batch []*request) []*request {
	if len(batch) == 0 {
		select {
		case r := <-s.queue:
			batch = append(batch, r)
		case <-s.closing:
		}
	}
	for len(batch) < maxBatch {
		select {
		case r := <-s.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// run takes a batch through one transaction and answers it. What did not fit is returned.
func (s *Store) run(batch []*request) (rest []*request) {
	if err := s.Err(); err != nil {
		answerAll(batch, err)
		return nil
	}
	tx, live, rest, damage := s.fill(batch)
	if damage != nil {
		s.fail(damage)
		answerAll(live, damage)
		s.abandon(damage)
		return rest
	}
	broken, err := s.commit(tx)
	switch {
	case err == nil:
		if tx.writes > 0 {
			s.requests.Add(uint64(len(live)))
		}
		finish(live)
	case errors.Is(err, ErrNoSpace) && len(live) > 1:
		// A deletion may go through where all together do not.
		for _, r := range live {
			s.run([]*request{r})
		}
	default:
		answerAll(live, err)
	}
	if broken {
		s.abandon(err)
	}
	return rest
}

// fill runs the functions of a batch in one transaction, over again without each that fails. It answers those; live are
// the ones to be committed. With damage, live is all that wait for an answer.
func (s *Store) fill(batch []*request) (tx *Tx, live, rest []*request, damage error) {
	for {
		tx = &Tx{}
		if damage = s.begin(tx); damage != nil {
			return tx, batch, nil, damage
		}
		live = nil
		again := false
		for i, r := range batch {
			if tx.bytes >= maxBatchBytes {
				return tx, live, batch[i:], nil
			}
			if !r.begin() {
				continue
			}
			writes := tx.writes
			tx.handlers = nil
			o, damage := call(tx, r.fn)
			if damage != nil {
				return tx, append(live, batch[i:]...), nil, damage
			}
			if o.err == nil && o.panicked == nil {
				r.handlers = tx.handlers
				live = append(live, r)
				continue
			}
			r.answer(o)
			if tx.writes != writes {
				batch, again = append(live, batch[i+1:]...), true
				break
			}
		}
		if !again {
			return tx, live, nil, nil
		}
		if damage := s.rollback(tx); damage != nil {
			return tx, batch, nil, damage
		}
	}
}

// begin opens the transaction for writing. Whatever goes wrong with that is damage.
func (s *Store) begin(tx *Tx) error {
	return s.unstuck(func() error {
		raw, err := s.gen.db.Begin(true)
		if err == nil {
			s.start(tx, raw)
		}
		return err
	})
}

// call runs one function. A panic of it is its outcome, one of bbolt is damage.
func call(tx *Tx, fn func(*Tx) error) (o outcome, damage error) {
	defer func() {
		if r := recover(); r != nil {
			if damage = asDamage(r, tx.inBolt); damage == nil {
				o.panicked = &PanicError{Value: r, Stack: debug.Stack()}
			}
		}
	}()
	return outcome{err: fn(tx)}, nil
}

func (s *Store) rollback(tx *Tx) (damage error) {
	defer func() {
		if r := recover(); r != nil {
			damage = asDamage(r, true)
		}
	}()
	return tx.raw.Rollback()
}

// commit makes the transaction durable. After ErrNoSpace it is rolled back; after any other error the store has failed,
// and broken says that bbolt's locks may be held for ever.
func (s *Store) commit(tx *Tx) (broken bool, err error) {
	if tx.writes == 0 {
		if err = s.rollback(tx); err != nil {
			s.fail(err)
		}
		return err != nil, err
	}
	// bbolt shows a transaction to readers once its pages are written; here they see it only when it is also durable.
	s.showing.Lock()
	defer s.showing.Unlock()
	id := tx.raw.ID()
	broken, err = commitRaw(tx)
	if err = s.gen.log.explain(err); err == nil {
		s.commits.Add(1)
		return false, nil
	}
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	full := durable.IsNoSpace(err) || errors.Is(err, ErrFull)
	if full && !broken && !s.visible(id) {
		return false, fmt.Errorf("commit: %w: %w", ErrNoSpace, err)
	}
	err = fmt.Errorf("commit: %w: %w", ErrUnknownOutcome, err)
	s.fail(err)
	return broken, err
}

func commitRaw(tx *Tx) (broken bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			broken, err = true, asDamage(r, true)
		}
	}()
	if err := tx.flush(); err != nil {
		return false, errors.Join(err, tx.raw.Rollback())
	}
	return false, tx.raw.Commit()
}

// visible reports whether the transaction with this number, whose commit returned an error, can be read all the same:
// its meta page was written and only the sync after that failed. It is also true when that cannot be found out.
func (s *Store) visible(id int) bool {
	seen := true
	err := s.unstuck(func() error {
		raw, err := s.gen.db.Begin(false)
		if err != nil {
			return err
		}
		seen = raw.ID() >= id
		return raw.Rollback()
	})
	return err != nil || seen
}

// finish runs the handlers of a committed batch and answers it, whatever the handlers do.
func finish(live []*request) {
	outcomes := make([]outcome, len(live))
	defer func() {
		for i, r := range live {
			r.answer(outcomes[i])
		}
	}()
	for i, r := range live {
		outcomes[i] = runHandlers(r.handlers)
	}
}

func runHandlers(handlers []func()) (o outcome) {
	defer func() {
		if r := recover(); r != nil {
			o.panicked = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	for _, fn := range handlers {
		fn()
	}
	return outcome{}
}
