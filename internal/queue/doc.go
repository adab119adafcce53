// Package queue keeps the attachments of one account in the store: the only source of truth about their state, and the
// only code that changes it.
//
// One mutator (mutate.go) loads a manifest, asks attachment.Next, and writes manifest, journal row, indexes and counters
// in one transaction; after the commit it publishes and logs. Everything that happens to an attachment is a method in
// lifecycle.go or decide.go that goes through it. The queue does no network and no spool I/O.
//
// Buckets, with their keys (| joins parts, 0 is a NUL byte, numbers are big-endian):
//
//	manifests    ID                         the manifest
//	order        seq                        ID, in the order of adoption
//	tails        ID reversed                nothing; finds an ID by its last digits
//	offsets      ID                         confirmed offset of the session at hand
//	segments     ID                         segment digests, 32 bytes each
//	receipts     ID                         the server's receipt
//	errors       ID                         the last failure in words
//	journal      seq                        what happened, in the order that counts
//	history      ID|seq                     nothing; the journal rows of one ID
//	due          10-priority|size class|not_before|seq
//	                                        ID, for everything the dispatcher may work on
//	conditions   condition|0|seq            ID
//	children     parent local ID|0|seq      ID
//	parents      parent local ID            the parent with its counts per condition
//	counters     condition                  items and bytes
//	claims       ID                         which worker has it; void at start
//	ledger       watch|0|path|0|medium|0|size|mtime
//	                                        ID|device|inode; what a source that stays in place became
//	contents     watch|0|length|sha256|parent local ID|0|seq
//	                                        ID; what bytes that are seen again became
//	releases     ID                         nothing; its source is still to be removed
//	intakes      ID                         an adoption under way
//	submissions  submission ID              the IDs that it became
//	channel      name                       the channel's backoff
//	decisions    name                       a person's standing decision
//	unbound      watch|0|path|0|seq         ID, for everything that a sidecar may still bind
//	sidecars     watch|0|path               which attachment a sidecar bound, while it lies there
//	unsynced     device|inode|size|mtime    boot in which this source failed to sync
package queue
