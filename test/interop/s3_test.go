package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	s3Bucket    = "evidence"
	s3AccessKey = "FIELDGWINTEROP"
	s3SecretKey = "secret-of-the-interop-tests"
)

// versitygw is a store over a directory of files: an object's key is its path below that of its bucket.
var versitygw = peer{
	name:     "versitygw by s3",
	config:   s3Config,
	missing:  func(context.Context) string { return missingProgram("versitygw") },
	foreign:  &rig.Foreign{Command: startVersitygw, Endpoint: func(addr string) string { return "http://" + addr }},
	readBack: storedAs(func(dir, key string) string { return filepath.Join(dir, s3Bucket, filepath.FromSlash(key)) }),
	grade:    receipt.VerifiedDigest,
}

func s3Config(dir string) (string, error) {
	keys := filepath.Join(dir, "s3-keys")
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s3AccessKey, s3SecretKey)
	return fmt.Sprintf("driver = \"s3\"\naccept_grade = \"verified-digest\"\ncredential = %q\ns3 = { bucket = %q }", keys, s3Bucket),
		os.WriteFile(keys, []byte(text), 0o600)
}

func startVersitygw(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "versitygw"), "--port", addr, "--quiet", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3AccessKey, "ROOT_SECRET_KEY="+s3SecretKey)
	return cmd, os.MkdirAll(filepath.Join(dir, s3Bucket), 0o755)
}
