// Package uplinktest is for tests of delivery: a server that keeps state and misbehaves on request, a network in memory
// that breaks and stalls, stand-ins for what surrounds an Uplink, and the suite that every Driver must pass.
//
// All of it works in a testing/synctest bubble. Start in rig.go puts it together; server.go is the server, faults.go what
// can go wrong with it, conformance.go the suite.
package uplinktest
