//go:build race

package daemon

// simDefault is how many worlds are simulated: under the race detector each takes several times as long.
const simDefault = 60
