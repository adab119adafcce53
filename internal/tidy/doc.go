// Package tidy holds the tests that keep the module in order; no program imports it.
//
// It owns three sets of rules. Style: sizes, doc comments, calls that are banned and what replaces them. Layers: which
// package may import which, each rule with its reason. Documents: what README.md, ARCHITECTURE.md and docs name must
// exist. It promises that each rule is itself tested on a small input which breaks it, that an exception carries a
// reason, and that an exception nothing needs any more fails too. To change a rule, read the table at the top of
// style_test.go or layers_test.go first.
package tidy
