package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// medium watches the file operations of a server and knows what of its data files a power cut would leave: the bytes up
// to the last fsync of a file, under the names that stood in its directory at the directory's last fsync.
type medium struct {
	t    *testing.T
	root string

	mu     sync.Mutex
	last   durable.Call
	synced map[uint64]int64             // inode → bytes that are on the disk
	names  map[string]map[string]uint64 // directory → names that are on the disk, and their inodes
	at     func(op durable.Call)        // called before each operation
}

func newMedium(t *testing.T) *medium {
	return &medium{t: t, synced: map[uint64]int64{}, names: map[string]map[string]uint64{}}
}

// hook is called before each operation: what the one before it did is known by now.
func (m *medium) hook(c durable.Call) error {
	m.mu.Lock()
	m.settle()
	m.last = c
	at := m.at
	m.mu.Unlock()
	if at != nil {
		at(c)
	}
	return nil
}

func (m *medium) settle() {
	switch m.last.Op {
	case durable.OpSync:
		if info, err := os.Stat(m.last.Path); err == nil {
			m.synced[inode(info)] = info.Size()
		}
	case durable.OpSyncDir:
		names := map[string]uint64{}
		entries, err := os.ReadDir(m.last.Path)
		for _, e := range entries {
			info, ierr := e.Info()
			if err = errors.Join(err, ierr); err == nil {
				names[e.Name()] = inode(info)
			}
		}
		if err != nil {
			m.t.Error(err)
		}
		m.names[m.last.Path] = names
	}
	m.last = durable.Call{}
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// tree is the content of a directory: path from its root → bytes.
type tree map[string]string

// now is the state of the data directory: as a killed process leaves it, or as a power cut does.
func (m *medium) now(power bool) tree {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	files := tree{}
	where := map[uint64][]byte{} // inode → bytes, of the data files
	data := filepath.Join(m.root, "accounts")
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if !power || !strings.HasPrefix(path, data) {
			files[m.rel(path)] = string(content)
			return err
		}
		info, ierr := d.Info()
		where[inode(info)] = content
		return errors.Join(err, ierr)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for dir, names := range m.names {
		if !power || !strings.HasPrefix(dir, data) {
			continue
		}
		for name, ino := range names {
			if content, ok := where[ino]; ok {
				files[m.rel(filepath.Join(dir, name))] = string(content[:min(int64(len(content)), m.synced[ino])])
			}
		}
	}
	return files
}

func (m *medium) rel(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil {
		m.t.Fatal(err)
	}
	return rel
}

// write puts the tree into a directory.
func (files tree) write(t *testing.T, dir string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, path)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// adopt takes what is in the data directory for durable.
func (m *medium) adopt() {
	m.t.Helper()
	check(m.t, filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			m.synced[inode(info)] = info.Size()
		}
		return err
	}))
}

// drop replaces the bytes of a file that no fsync has made durable by zeros.
func (m *medium) drop(path string) {
	m.t.Helper()
	content, err := os.ReadFile(path)
	check(m.t, err)
	info, err := os.Stat(path)
	check(m.t, err)
	clear(content[min(info.Size(), m.synced[inode(info)]):])
	check(m.t, os.WriteFile(path, content, 0o600))
}
