package store

import (
	"fmt"
	"runtime/debug"
)

// PanicError is what Update panics with when its function panicked, by a fault of its own, on the writer goroutine. The
// store is not affected: that transaction was rolled back.
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the writer goroutine, at the panic
}

// Error shows value and stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("store: update function panicked: %v\n\n%s", e.Value, e.Stack)
}

// vanished is panicked with where something is gone that was there when the store was opened. It never leaves the package.
type vanished string

// asDamage tells what a recovered panic means: damage of the file, or nil for a fault of the function that was called.
// inBolt says that bbolt was at work.
//
// A read of the mapped file that the kernel cannot serve (cut file: SIGBUS; bad block: SIGBUS; wild pointer: SIGSEGV) is
// a panic whose value has an address, thanks to debug.SetPanicOnFault; a nil pointer of ours has none. bbolt's own
// assertions are panics inside of it.
func asDamage(r any, inBolt bool) error {
	if fault, ok := r.(interface{ Addr() uintptr }); ok {
		return fmt.Errorf("%w: fault at address %#x while reading it; %s", ErrDamaged, fault.Addr(), keepFile)
	}
	if what, ok := r.(vanished); ok {
		return fmt.Errorf("%w: %s; %s", ErrDamaged, string(what), keepFile)
	}
	if inBolt {
		return fmt.Errorf("%w: bbolt gave up: %v; %s", ErrDamaged, r, keepFile)
	}
	return nil
}

// keepFile is what a person is told about any damaged file.
const keepFile = "nothing was changed; keep the file, restart, and rebuild it if it is refused again"

// isolated runs a step of bbolt that touches a file which is not trusted yet, on a goroutine of its own: a panic there
// may leave bbolt's locks held for ever, and then nobody waits for them.
func isolated(step func() error) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				err = asDamage(r, true)
			}
			done <- err
		}()
		debug.SetPanicOnFault(true)
		err = step()
	}()
	return <-done
}

// unstuck runs a step of bbolt which takes its locks and returns its error. When a fault elsewhere left those locks held,
// it does not wait for them: it returns the store's error, and the goroutine stays behind in a process that has to end.
func (s *Store) unstuck(step func() error) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				err = s.abandon(asDamage(r, true))
			}
			done <- err
		}()
		debug.SetPanicOnFault(true)
		err = step()
	}()
	select {
	case err := <-done:
		return err
	case <-s.abandoned:
		return s.Err()
	}
}

// reraise goes on with a panic that is not the store's to handle.
func reraise(r any) { panic(r) }

// misuse ends the program for a mistake in it that no run of it can survive.
func misuse(format string, args ...any) { panic("store: " + fmt.Sprintf(format, args...)) }

// gone reports that the open file lost something.
func gone(format string, args ...any) { panic(vanished(fmt.Sprintf(format, args...))) }
