//go:build !race

package daemon

// simDefault is how many worlds are simulated.
const simDefault = 400
