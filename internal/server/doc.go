// Package server is fieldgw-server: the receiving half of the protocol in docs/protocol.md.
//
// It owns the control plane (reserve, look, register, list, download), who may ask, and the life of the process; the
// data plane is package upload, records and bytes are package store. A client that knows tus alone opens its upload by
// itself, and the server registers that. It promises that an attachment ID has one record,
// however many devices reserve it at once; that identical bytes of one account are one content and one media item; that
// a receipt is durable before it is answered and is the same at every repetition; and that nothing incomplete is ever
// listed or downloaded. Account and device come from the credential alone.
//
// Nothing is promised on the length of a file: where bytes are waived and where a receipt is given for the first time, this
// process has read the content itself. What was promised before a damage is answered for as long as the file stands and was
// not found to be damaged; then the device is told that bytes are missing, and gets the very same receipt once they are
// back (the rules are in store/rules.go). Damage that any reading found is never forgotten: the file is taken out of its
// place, and the empty place is what every later process sees.
//
// Server is a value that a test can start: New opens and recovers, Handler answers, Run serves until told to stop.
// Read server.go, then route.go, reserve.go and registration.go.
//
// # Commit points
//
// What is durable after each step, and what a start makes of a crash behind it. The step marked * is the commit point.
//
//	reserve
//	1* one transaction: attachment, session (offset 0), media item, content → media item    repeated reserve: 200
//	2  answer
//
//	append
//	1  first append of a session: data file made, its directory fsynced                     no record counts it: stays, empty
//	2  data file cut down to the confirmed offset, bytes written behind it                  cut off again at the start
//	3  data file fsynced                                                                    cut off again at the start
//	4* transaction: offset                                                                  offset stands; file is never shorter
//	5  answer                                                                               client asks by HEAD
//
//	create (by a client without the control plane)
//	1* transaction as in reserve; length and digest may be open                             repeated creation that names it: same session
//	2  answer
//
//	a length told later, before the append that tells it
//	1* one transaction: length of session and attachment                                    stands; told again, nothing happens
//
//	verify (after the last append, by GET, or by registration; every step may be repeated)
//	1  data file read back: length, SHA-256                                                 done again when next asked
//	   nobody declared a digest: transaction: the one found, media item                     the content is looked for under it
//	2  data file fsynced, renamed over its content name, directories fsynced                open session, file gone, content there:
//	                                                                                        read and verified in its place
//	3* transaction: attachment verified, session complete; registered too, if created       verified; created: whoever asks next, or
//	                                                                                        tidying, comes here
//	or, when the bytes are not the declared ones:
//	2* transaction: session void                                                            422 until reserved again
//	3  data file removed                                                                    removed at the start
//
//	register
//	1  content file read back, unless this process has done so                              nothing
//	2* transaction: receipt, media item READY, place in the list                            repeated registration: same receipt
//	3  answer
//
//	a session is ended by its client, or got no byte for Limits.Expire
//	1* transaction: session void, attachment reserved and void                              410 from now on
//	2  data file removed                                                                    removed at the start
//
//	a reading finds a content damaged (by reserve, register, verify or an operator)
//	1  nobody is given the file any more, in this process                                   as if it had not been read
//	2* file renamed beside its place, directory fsynced                                     no content there, until verify 2
//	3  answer; an operator's finding: transaction: attachment reserved and void             its receipt stands, 410 until sent again
//
//	first start
//	1  key file, then certificate file (each whole or not at all)                           a key alone is made anew
//	2  token file                                                                           made anew: no token is recorded yet
//	3* transaction: token                                                                   normal
//
// A confirmed offset whose bytes are missing at a start makes the session void (410); the next reserve opens generation
// + 1 at offset 0. A failed fsync of a data file does the same at once: the page cache no longer tells what the disk holds.
//
// # A copy of the data directory
//
// The epoch names the record file and goes with it: a copy of the data directory that is put back is to devices the same
// server, with an earlier memory. It is true to what it holds. Attachments and receipts from after the copy are unknown to
// it (404), offsets are those of the copy, an append behind them is told the right one, and a session whose file is shorter
// than its record is void. What it cannot do is call back a device that holds a receipt from after the copy and has let go
// of its file since. Put a copy back only after the directory itself is lost; copy records before contents, since a content
// without a record does no harm; and never serve a copy beside the original. A record file of its own never appears
// beside contents: a server that finds contents and no record file refuses to start.
package server
