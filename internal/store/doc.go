// Package store owns one bbolt file: the device's queue, or the server's books.
//
// It promises that what Update returned nil for is durable; that state which cannot be read is never taken for empty
// state; that one damaged value is that value's damage alone; and that a file, or a disk, which cannot be trusted stops the
// store by name instead of killing the process or going on as if nothing were wrong.
//
// The file, from the outside in:
//
//	page 0, 1    bbolt's two meta pages, checksummed, written in turn: the newer one is the root of the last commit
//	page 2...    bbolt's tree and its list of free pages. bbolt gives these no checksum and trusts them; Open and Check
//	             therefore read all of them with pread and verify the structure before bbolt maps them
//	  "fieldgw.meta"     schema, version, epoch (random, made with the file), created_at: text
//	  "fieldgw.counts"   bucket name -> keys in it uint64 | last sequence number uint64, both big endian
//	  NAME               a bucket of the schema, flat: key -> value
//
//	every value, in all buckets:   CRC32C of (bucket name, key, value) uint32 big endian | value
//
// Counts and sequences change in the transaction that changes the bucket, so a page that got lost with its keys is found
// as a wrong count, which no checksum of a value could show. A key that was hit shows as a damaged value under the wrong
// key, and the right one is absent: who finds a damaged value looks for what is missing, too.
//
// The file is longer than its pages, and sparse there. Blocks for Options.Reserve bytes (4 MiB) after the last page are
// reserved at Open and as the file grows, so that a disk which others have filled still takes commits.
//
// A new file is filled under a hidden name beside it, closed, synced and then published by a rename that replaces nothing.
// An existing file is locked, verified, and only then given to bbolt: an empty one, which bbolt would take for new, never
// gets there. Nor does one whose newer meta page may be the damaged one: bbolt would go on with the transaction before. That
// a power cut tears a meta page is taken for damage too, since its 80 bytes lie in one sector.
//
// One writer goroutine serves all Updates: whatever waits is run in one transaction, in order. A commit that fails because
// the volume is full has been rolled back and the store goes on; any other failure leaves open what a restart will find,
// so the store fails closed (Failed, Err). Reads of the mapped file run with debug.SetPanicOnFault: a cut file or a bad
// block is then an error (ErrDamaged) and not the end of the process. bbolt's locks may stay held after such a panic, so
// from then on its database is abandoned and nothing waits for it.
//
// When free pages make up more than Options.CompactPercent (25 %) of the file and more than Options.CompactBytes (16 MiB),
// the writer replaces the file, between two transactions, by a copy without them: written under a hidden name, synced, read
// back and compared, locked, given its reserve, renamed over the old one. A crash leaves one of the two, whole. Views keep
// the file that they began with; while one still holds the file before, no other is made, so that there are never more than
// two. A copy that fails is logged once, and tried again when the free share has grown by ten points or an hour has
// passed; a rename that may not be durable fails the store. Of 100,000 values of 1 KiB 90 % were deleted: the file went
// from 212 to 19 MB in 0.25 s, and a small commit, which writes the whole list of free pages, from 389 to 25 kB.
//
// Verification at Open reads everything once. For 100,000 values of 1 KiB (a file of 220 MB) in the page cache it took
// 90 ms, and 18 ms more with the checksums of all values, which are therefore included; the damaged ones are counted in
// Stats.BadValues and logged, and Get and Scan name each.
//
// Read store.go first, then tx.go and bucket.go (what callers use), writer.go (how commits happen), open.go with
// inspect.go, pages.go and walk.go (what is verified), compact.go with copy.go and generation.go (how the file is
// replaced), reserve.go, and guard.go (panics and faults).
package store
