// Package interop holds the tests of fieldgwd against servers that nobody here wrote, each a process of its own on loopback:
// real files and a large one, with daemon, server and link killed and cut at random progress, and the digests read back from
// the server's own store at the end. It has no code of its own; package rig runs the programs.
//
// A server is a peer (peers_test.go); what befalls it is in run_test.go. `make interop` installs the peers and runs the whole;
// `make test` a short version with those that are installed.
package interop
