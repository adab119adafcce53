// Package intake takes custody: it brings a file from a capture directory, or from a submission, into the spool and the
// queue, and it alone knows the order of those steps and what a crash between any two of them means.
//
// Adoption, by move or by copy (ARCHITECTURE.md has the table with what start-up does after a crash at each step):
//
//	0  open the source, take a read lease, look whether it is still what was seen; for a move: fsync and hash it now
//	1  record the intake                                                         intent is durable
//	2  rename or copy to staging, fsync file and directories                     bytes are staged
//	3  hold length and digest against the source, look at the structure          validated
//	4  write ID.manifest, rename the payload beside it, fsync both and the file  secured
//	5  commit manifest, journal, ledger and the end of the intake                COMMIT POINT: "adopted" is logged
//	6  copied from a watch that moves: remove the source, if it is provably still the same and nobody writes to it
//
// Before step 1 the source is held against what was taken before: by its description in the ledger, then by its bytes
// (recognize.go; medium.go says what a card's name is worth).
//
// A source leaves its directory only by the rename of step 2 or by step 6. Read adopt.go first, then recognize.go, move.go, copy.go,
// release.go, submit.go, and recover.go for start-up.
package intake
