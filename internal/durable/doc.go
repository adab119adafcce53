// Package durable is the only way in which fieldgw touches files that must survive a crash.
//
// It owns the handful of operations that custody is built on (open, write, sync, rename, remove, make directory) and the
// order in which they become durable: a new name is only safe after fsync of the file and of the directory that holds it.
// It promises that a call which returned nil is on the medium as far as Linux can tell, and that a failed fsync is final:
// after one, the page cache may show bytes that the disk does not hold, so the file must be thrown away and made again.
//
// Every operation passes a Hook first, so that tests can fail or stop the n-th operation of a scenario.
// Read fs.go first, then write.go (whole files) and lease.go (is anybody still writing?).
package durable
