package main

import (
	"context"

	"github.com/fieldgw/fieldgw/test/rig"
)

// The commit of internal/store is no operation of internal/durable. The build replaces this one call with the counted one.
var countCommits = rig.Replacement{
	File: "internal/store/writer.go",
	Old:  "tx.raw.Commit()",
	New:  "durable.CountCommit(tx.raw.DB().Path(), tx.raw.Commit)",
}

// build builds the programs that count and kill themselves into bin. dir takes what the build needs.
func build(ctx context.Context, dir, bin string) error {
	return rig.BuildReplaced(ctx, dir, bin, []rig.Replacement{countCommits}, "-tags", "killpoints")
}
