package config

import (
	_ "embed"
	"slices"
)

//go:embed example.toml
var example []byte

// Example returns the configuration file of the package: every key there is, commented out, with its default and one
// line that explains it. Lines of keys and tables begin with "#" alone, lines of explanation with "# ".
func Example() []byte { return slices.Clone(example) }
