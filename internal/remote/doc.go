// Package remote is the device's view of the server's end: one HTTP client with its credential and its limits, one
// decision about what every failure means, and one schedule for trying again.
//
// It promises that the token leaves the device only towards the configured host and never reaches a log or an error, also
// where something sends it back;
// that an answer without the protocol's mark is never taken for our server's; that every wait has a limit; and that
// every failure has a class. It repeats nothing by itself but one call after a broken connection: when to try again is
// durable state, which the caller keeps.
//
// Read class.go for the words, rules.go for the table of failures, call.go for how requests are sent, transport.go for the
// connections (with certificate.go, proxy.go, and roaming.go for a way that changes), schedule.go and channel.go for what
// happens after a failure.
package remote
