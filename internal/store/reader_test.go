package store

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const readerChildEnv = "FIELDGW_STORE_READER_CHILD"

// A reader sees what a commit wrote only when it is durable: while the last fdatasync of the commit is under way it gets
// the old state or waits, and never shows what a power cut could still take back. bbolt alone shows the new state there.
func TestReaderSeesOnlyDurableState(t *testing.T) {
	if path := os.Getenv(readerChildEnv); path != "" {
		readerChild(t, path)
		return
	}
	path := tempPath(t)
	mustClose(t, roomy(t, path))
	cmd := exec.Command(os.Args[0], "-test.run=^TestReaderSeesOnlyDurableState$")
	cmd.Env = append(os.Environ(), readerChildEnv+"="+path)
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("no seccomp")) {
		t.Skipf("not run: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("asked in mid-commit")) {
		t.Fatalf("nobody read in the middle of the commit:\n%s", out)
	}
}

func readerChild(t *testing.T, path string) {
	s := mustOpen(t, path, testSchema("a"))
	seen := make(chan string, 1)
	read := func() { seen <- dump(t, s, "a", nil, nil) }
	// The second fdatasync of a commit is that of its meta page, which is written by then.
	err := holdSyscall(commitCalls["fdatasync"], s.gen.file.Fd(), func(count int) unix.Errno {
		if count != 2 {
			return 0
		}
		fmt.Println("asked in mid-commit")
		go read()
		select {
		case got := <-seen:
			if got != "k=old" {
				t.Errorf("%q is shown and not durable", got)
			}
			go read()
		case <-time.After(300 * time.Millisecond): // room for a reader that does not wait; one that does needs the answer
		}
		return 0
	})
	if err != nil {
		fmt.Printf("no seccomp: %v\n", err)
		return
	}
	if err := putOne(t, s, "k", "new"); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "k=new" {
		t.Errorf("after the commit a reader sees %q", got)
	}
}
