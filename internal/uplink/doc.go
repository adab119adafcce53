// Package uplink delivers one attachment to the server: reserve, transfer, verify, register.
//
// It promises that only offsets which the server confirmed are recorded; that the session is recorded before its first
// byte and every confirmed offset before sending goes on, so that a cut re-sends one chunk at most, in a longer append too; that each chunk is
// checked against the recorded digests before it is sent; and that an attachment is reported registered only with a
// receipt that repeats every fact of it. It decides nothing about when to send, keeps no state between deliveries but the
// size of a chunk and whether long appends pay, and waits for nothing longer than a few seconds: what it cannot settle at once it returns, judged.
//
// What the surroundings provide and get is in contract.go; read it first, then deliver.go and transfer.go. A Driver
// speaks to one kind of server and is the package of its name (`http` is wholefile); package uplinktest has the suite that each must pass, and a server that misbehaves.
package uplink
