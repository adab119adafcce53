package rig

import (
	"context"
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

// Root is the directory of the module that the working directory is in.
func Root(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}
