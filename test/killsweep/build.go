package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fieldgw/fieldgw/test/rig"
)

// The commit of internal/store is no operation of internal/durable. The build replaces this one call, by an overlay of the
// go command, with the counted one; the source stays as it is.
const (
	commitFile = "internal/store/writer.go"
	commitCall = "tx.raw.Commit()"
	counted    = "durable.CountCommit(tx.raw.DB().Path(), tx.raw.Commit)"
)

// build builds the programs that count and kill themselves into bin. dir takes what the build needs.
func build(ctx context.Context, dir, bin string) error {
	root, err := rig.Root(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(root, filepath.FromSlash(commitFile))
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := bytes.Count(source, []byte(commitCall)); n != 1 {
		return fmt.Errorf("%s calls %s %d times; the sweep counts commits where there is one such call", commitFile, commitCall, n)
	}
	replaced := filepath.Join(dir, "writer.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(replaced, bytes.Replace(source, []byte(commitCall), []byte(counted), 1), 0o600); err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	return rig.Build(ctx, bin, "-tags", "killpoints", "-overlay", list)
}
