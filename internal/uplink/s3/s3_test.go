package s3_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

const (
	accessKey = "FIELDGWACCESSKEY"
	secretKey = "fieldgw-secret-key-of-tests"
	keys      = "access_key_id = " + accessKey + "\nsecret_access_key = " + secretKey
	bucket    = "evidence"
)

// store is a versitygw process over a directory.
type store struct {
	endpoint, dir string
	cmd           *exec.Cmd
}

// startStore runs the gateway until the test ends. Where it is not installed the test is skipped, and says so.
func startStore(t *testing.T) *store {
	t.Helper()
	path, err := exec.LookPath("versitygw")
	if err != nil {
		path = "../../../build/interop/versitygw" // where make interop puts it
		if _, err := os.Stat(path); err != nil {
			t.Skip("not run: versitygw is not installed; make interop does it")
		}
	}
	s := &store{dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(s.dir, bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setxattr(s.dir, "user.fieldgw", []byte("x"), 0); err != nil {
		t.Skipf("not run: versitygw needs extended attributes, which %s has not: %v", s.dir, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.endpoint = "http://" + address
	s.cmd = exec.Command(path, "--port", address, "--quiet", "posix", s.dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := s.cmd.Wait(); err == nil {
			t.Error("versitygw ended by itself")
		}
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		resp, err := http.Get(s.endpoint)
		if err == nil {
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// driver makes a driver of the store; options change it.
func (s *store) driver(t *testing.T, change ...func(*s3.Options)) *s3.Driver {
	t.Helper()
	credential := &uplinktest.Credential{}
	credential.Set(keys, nil, false)
	d, _ := s.with(t, credential, change...)
	return d
}

func (s *store) with(t *testing.T, credential remote.Credential, change ...func(*s3.Options)) (*s3.Driver, *remote.Client) {
	t.Helper()
	key, err := placement.ParseKey(placement.DefaultKey, "plant-7", "tablet-3")
	if err != nil {
		t.Fatal(err)
	}
	o := s3.Options{Store: s3.Store{Bucket: bucket, Region: "us-east-1"}, Key: key}
	for _, f := range change {
		f(&o)
	}
	client, err := remote.New(remote.Options{
		Endpoint: s.endpoint, Credential: credential, UserAgent: "test", Logger: slog.New(slog.DiscardHandler), Protocol: s3.Protocol(o.Store),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	return s3.New(client, o), client
}

// The driver keeps every promise that it declares, against a server that nobody here wrote.
func TestConforms(t *testing.T) {
	s := startStore(t)
	for _, length := range []bool{false, true} {
		t.Run(fmt.Sprintf("length only %v", length), func(t *testing.T) {
			uplinktest.Run(t, func(t *testing.T) (uplink.Driver, uplink.Driver) {
				set := func(o *s3.Options) { o.LengthOnly = length }
				return s.driver(t, set), s.driver(t, set)
			})
		})
	}
}
