// Package attachment is fieldgw's domain: one file with one client-generated ID, from adoption to release.
//
// It holds the ID, the manifest, the states and events with the one pure transition function, the conditions that people
// are shown, and the closed list of reasons why something waits or needs a person. It does no I/O and asks no clock.
// Read state.go first (what can happen), then manifest.go (what is known), condition.go and code.go (what is said).
package attachment
