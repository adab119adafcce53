package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writer is one program at work: it prepares in source, writes into dir, and notes what it left there.
type writer struct {
	t           *testing.T
	ctx         context.Context
	rnd         *rand.Rand
	source, dir string
	left        map[string]string // digest by base name
}

// species is one way of making files.
type species struct {
	name string
	// needs are the programs without which it cannot be run.
	needs []string
	write func(w *writer) error
}

var zoo = []species{
	{"slow", nil, (*writer).slow},
	{"append-reopen", nil, (*writer).appendReopen},
	{"temp-rename", nil, (*writer).tempRename},
	{"mmap", nil, (*writer).mmap},
	{"two-writers", nil, (*writer).twoWriters},
	{"truncate-rewrite", nil, (*writer).truncateRewrite},
	{"dd-pauses", []string{"dd", "sh"}, (*writer).ddPauses},
	{"cp-large", []string{"cp"}, (*writer).cpLarge},
	{"rsync", []string{"rsync"}, (*writer).rsync},
	{"sftp", []string{"sftp", sftpServer}, (*writer).sftp},
	{"scp", []string{"scp", sftpServer}, (*writer).scp},
	{"unzip", []string{"unzip", "zip"}, (*writer).unzip},
	{"git-clone", []string{"git"}, (*writer).gitClone},
}

// sftpServer lets sftp and scp work without a network: they start it themselves (sftp -D, sftp-server(8)).
const sftpServer = "/usr/lib/openssh/sftp-server"

func (s species) missing() string {
	for _, program := range s.needs {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	return ""
}

// pause waits for a time around d.
func (w *writer) pause(d time.Duration) {
	select {
	case <-w.ctx.Done():
	case <-time.After(d/2 + time.Duration(w.rnd.Int64N(int64(d)))):
	}
}

func (w *writer) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rnd.Uint32())
	}
	return b
}

// run runs a program and returns what it said when it fails.
func (w *writer) run(dir, name string, args ...string) error {
	cmd := exec.CommandContext(w.ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+w.source, "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// tree makes files in nested directories below source/tree and notes them as what will be left.
func (w *writer) tree(files int) (string, error) {
	root := filepath.Join(w.source, "tree")
	for i := range files {
		dir := filepath.Join(root, fmt.Sprintf("a%d", i%3), fmt.Sprintf("b%d", i%5))
		content := w.bytes(1 + w.rnd.IntN(200_000))
		name := fmt.Sprintf("%s-%02d.bin", filepath.Base(w.dir), i)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), content, 0o644)); err != nil {
			return "", err
		}
		w.left[name] = digestOf(content)
	}
	return root, nil
}

// slow keeps the file open and writes piece by piece, twice with a silence longer than the settle time.
func (w *writer) slow() error {
	f, err := os.Create(filepath.Join(w.dir, "slow.bin"))
	if err != nil {
		return err
	}
	var content bytes.Buffer
	for i := range 20 {
		if _, err := io.MultiWriter(f, &content).Write(w.bytes(10_000)); err != nil {
			return errors.Join(err, f.Close())
		}
		w.pause(50 * time.Millisecond)
		if i%10 == 9 {
			w.pause(2 * zooSettle)
		}
	}
	w.left["slow.bin"] = digestOf(content.Bytes())
	return f.Close()
}

// appendReopen closes the file after each piece, as loggers do, and comes back before it has settled.
func (w *writer) appendReopen() error {
	var content bytes.Buffer
	for range 30 {
		f, err := os.OpenFile(filepath.Join(w.dir, "log.bin"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.MultiWriter(f, &content).Write(w.bytes(5_000))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		w.pause(60 * time.Millisecond)
	}
	w.left["log.bin"] = digestOf(content.Bytes())
	return nil
}

// tempRename writes under temporary names of several programs and renames.
func (w *writer) tempRename() error {
	for i, temporary := range []string{"%s.part", "%s.tmp", "%s~", ".%s.Xy12Zz", "%s.crdownload", "%s.filepart"} {
		name := fmt.Sprintf("renamed-%d.bin", i)
		path := filepath.Join(w.dir, fmt.Sprintf(temporary, name))
		content := w.bytes(100_000)
		if err := os.WriteFile(path, content[:40_000], 0o644); err != nil {
			return err
		}
		w.pause(zooSettle)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(w.dir, name)); err != nil {
			return err
		}
		w.left[name] = digestOf(content)
	}
	return nil
}

// mmap writes through a mapping whose descriptor is closed, and stays silent longer than the settle time in between.
func (w *writer) mmap() error {
	f, err := os.OpenFile(filepath.Join(w.dir, "mapped.bin"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	content := w.bytes(256 << 10)
	err = f.Truncate(int64(len(content)))
	var mapped []byte
	if err == nil {
		mapped, err = unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	half := len(content) / 2
	copy(mapped, content[:half])
	w.pause(2 * zooSettle)
	copy(mapped[half:], content[half:])
	w.left["mapped.bin"] = digestOf(content)
	return errors.Join(unix.Msync(mapped, unix.MS_SYNC), unix.Munmap(mapped))
}

// twoWriters hold one file open and write in turns; one closes long before the other.
func (w *writer) twoWriters() error {
	path := filepath.Join(w.dir, "two.bin")
	a, err := os.Create(path)
	if err != nil {
		return err
	}
	b, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	content := w.bytes(200_000)
	_, err = a.WriteAt(content[:100_000], 0)
	err = errors.Join(err, a.Close())
	w.pause(2 * zooSettle)
	_, werr := b.WriteAt(content[100_000:], 100_000)
	w.left["two.bin"] = digestOf(content)
	return errors.Join(err, werr, b.Close())
}

// truncateRewrite writes a file over from its start several times, each time before it has settled.
func (w *writer) truncateRewrite() error {
	for range 8 {
		content := w.bytes(20_000 + w.rnd.IntN(100_000))
		if err := os.WriteFile(filepath.Join(w.dir, "again.bin"), content, 0o644); err != nil {
			return err
		}
		w.left["again.bin"] = digestOf(content)
		w.pause(60 * time.Millisecond)
	}
	return nil
}

// ddPauses is a shell that holds the file open while several dd write to it, with silences longer than the settle time.
func (w *writer) ddPauses() error {
	content := w.bytes(3 << 16)
	from := filepath.Join(w.source, "from.bin")
	if err := os.WriteFile(from, content, 0o644); err != nil {
		return err
	}
	w.left["dd.bin"] = digestOf(content)
	part := func(n int) string { return fmt.Sprintf("dd if=%s bs=64k count=1 skip=%d status=none", from, n) }
	silence := fmt.Sprintf("sleep %.1f", (2 * zooSettle).Seconds())
	script := fmt.Sprintf("{ %s && %s && %s && %s && %s; } >dd.bin", part(0), silence, part(1), silence, part(2))
	return w.run(w.dir, "sh", "-c", script)
}

// cpLarge copies a file that takes a while.
func (w *writer) cpLarge() error {
	from := filepath.Join(w.source, "large.bin")
	f, err := os.Create(from)
	if err != nil {
		return err
	}
	block := w.bytes(1 << 20)
	for at := int64(0); at < *zooLarge && err == nil; at += int64(len(block)) {
		copy(block, fmt.Sprint(at))
		_, err = f.Write(block)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if w.left["large.bin"], err = digestFile(from); err != nil {
		return err
	}
	return errors.Join(w.run("", "cp", from, filepath.Join(w.dir, "large.bin")), os.Remove(from))
}

func (w *writer) rsync() error {
	tree, err := w.tree(20)
	if err != nil {
		return err
	}
	return w.run("", "rsync", "--recursive", "--times", "--bwlimit=4m", tree+"/", w.dir)
}

func (w *writer) sftp() error {
	tree, err := w.tree(10)
	if err != nil {
		return err
	}
	batch := filepath.Join(w.source, "batch")
	if err := os.WriteFile(batch, fmt.Appendf(nil, "put -R %s %s\n", tree, w.dir), 0o644); err != nil {
		return err
	}
	return w.run("", "sftp", "-b", batch, "-D", sftpServer)
}

func (w *writer) scp() error {
	tree, err := w.tree(10)
	if err != nil {
		return err
	}
	return w.run("", "scp", "-r", "-D", sftpServer, tree, "nowhere:"+w.dir)
}

func (w *writer) unzip() error {
	tree, err := w.tree(30)
	if err != nil {
		return err
	}
	archive := filepath.Join(w.source, "tree.zip")
	return errors.Join(w.run(tree, "zip", "-q", "-r", archive, "."), w.run(w.dir, "unzip", "-q", archive))
}

// gitClone checks a repository out. Git itself fails where files leave its work tree while it still looks at them, so it
// is asked for the tree alone.
func (w *writer) gitClone() error {
	tree, err := w.tree(40)
	if err != nil {
		return err
	}
	git := func(args ...string) error {
		return w.run(tree, "git", append([]string{"-c", "user.name=zoo", "-c", "user.email=zoo@localhost"}, args...)...)
	}
	return errors.Join(git("init", "-q"), git("add", "."), git("commit", "-q", "-m", "tree"),
		w.run(w.dir, "git", "clone", "-q", tree, "clone"))
}

func digestFile(path string) (string, error) {
	content, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer content.Close()
	return digestReader(content)
}
