// Package transport holds tests of the way between the real programs: credentials that expire, are replaced or are refused,
// portals and other servers in our server's place, secrets that must stay secret, and a link that changes.
package transport
