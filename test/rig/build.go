package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the three programs into dir, from the module that the working directory is in. flags are further ones of
// go build.
func Build(ctx context.Context, dir string, flags ...string) error {
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-trimpath", "-o", dir + string(os.PathSeparator)}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/...")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// Replacement is a piece of a source file that a build takes New for; the file itself stays as it is. Old must be there
// exactly once. Without Old the build has a further file, New.
type Replacement struct{ File, Old, New string }

// BuildReplaced is Build with replacements, by an overlay of the go command. scratch takes what the build needs. A relative
// File is one of the module.
func BuildReplaced(ctx context.Context, scratch, dir string, replace []Replacement, flags ...string) error {
	root, err := Root(ctx)
	if err != nil {
		return err
	}
	overlay := map[string]string{}
	for i, r := range replace {
		path := filepath.FromSlash(r.File)
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		source := []byte(r.New)
		if r.Old != "" {
			if source, err = os.ReadFile(path); err != nil {
				return err
			}
			if n := bytes.Count(source, []byte(r.Old)); n != 1 {
				return fmt.Errorf("%s has %q %d times; the build replaces it where it is once", r.File, r.Old, n)
			}
			source = bytes.Replace(source, []byte(r.Old), []byte(r.New), 1)
		}
		overlay[path] = filepath.Join(scratch, fmt.Sprintf("replaced-%d.go", i))
		if err := os.WriteFile(overlay[path], source, 0o600); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
	if err != nil {
		return err
	}
	path := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return err
	}
	return Build(ctx, dir, append([]string{"-overlay", path}, flags...)...)
}

// Root is the directory of the module that the working directory is in.
func Root(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}
