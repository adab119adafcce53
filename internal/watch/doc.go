// Package watch finds completed files in capture directories.
//
// It owns the question "is this file complete, and has it been offered?" and nothing after it: a file that is quiet, closed
// and not temporary becomes a Candidate, whoever takes candidates answers each with a Disposition. It promises that no file
// below an available root is overlooked for longer than one rescan (ten, when it was only written in place and no event
// told of it), that none is offered while it is seen to change or to be
// open for writing, that everything else it saw stands in NotTaken with its reason, and that it changes no file.
//
// What a filesystem cannot be trusted with (events, times, leases) follows from its type: durable.Medium, medium.go. Mounts
// that come and go are followed (mounts.go), and a marker file can prove that a medium is the right one.
//
// Events of the kernel are hints: they mark a directory dirty, and a scan of the directory is what counts. Every root has a
// loop of its own, so that a medium that hangs holds up nothing but itself, and written limits (limits.go) keep the memory
// bounded whatever lies in the tree: what is beyond them is found again by a later scan.
//
// Read watcher.go first, then observe.go (when is a file complete?), scan.go (what does a scan do?) and offer.go (looking
// again, probing, offering). All times that decide anything are running time since the file was observed; modification
// times are only compared with each other, so a wrong clock decides nothing.
package watch
