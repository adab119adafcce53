package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// shard is one directory of contents. Whoever changes a name in it holds the lock until the change is durable, so that
// nobody tells of a content, or of the loss of one, what a power cut would take back.
type shard struct {
	mu sync.RWMutex
	// durable says that this process has seen to it that the names are durable. Whoever changed one before may have died,
	// or failed, before they were.
	durable bool
}

func (f *Files) shard(account, sha string) (dir string, s *shard) {
	dir = filepath.Dir(f.blob(account, sha))
	v, _ := f.shards.LoadOrStore(dir, new(shard))
	return dir, v.(*shard)
}

// settle makes the names of a shard durable, with the lock held.
func (f *Files) settle(s *shard, dir string, more ...string) error {
	err := f.fs.SyncDirs(append([]string{dir, filepath.Dir(dir)}, more...)...)
	s.durable = err == nil
	return err
}

// Keep makes a session's measured data file the account's content under its digest, durably, in the place of whatever
// stands there: these bytes were read back a moment ago, and of the others nobody knows what became of them. A damaged
// content is healed by that. It may be repeated after a crash at any point. It returns the identity of the content file,
// and, where a file of another length stood in its place, the path under which that was set aside. Errors: ErrLost when
// the data file cannot be made durable and must be discarded.
func (f *Files) Keep(account, session string, c Content) (id durable.Identity, aside string, err error) {
	if err := f.prepare(account); err != nil {
		return id, "", err
	}
	dir, s := f.shard(account, c.SHA256)
	if err := f.fs.MkdirAll(dir, dirMode); err != nil {
		return id, "", fmt.Errorf("keep content: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durable = false
	id, aside, err = f.move(f.upload(account, session), f.blob(account, c.SHA256), c.Length)
	if err == nil {
		err = f.settle(s, dir, f.uploads(account))
	}
	if err != nil {
		return id, aside, fmt.Errorf("keep content %s: %w", c.SHA256, err)
	}
	return id, aside, nil
}

func (f *Files) move(from, to string, length int64) (id durable.Identity, aside string, err error) {
	old, whole, err := f.look(to, length)
	if err != nil {
		return id, "", err
	}
	file, err := f.fs.OpenWrite(from)
	switch {
	case durable.IsNotExist(err) && whole:
		return old, "", nil // moved before a crash, and read back where it is now
	case durable.IsNotExist(err) && length == 0:
		file, err = f.fs.Create(from, fileMode)
	}
	if err != nil {
		return id, "", err
	}
	err = file.Sync()
	info, serr := file.Stat()
	if err = errors.Join(err, serr, file.Close()); err != nil {
		return id, "", fmt.Errorf("%w: %w", ErrLost, err)
	}
	id, _, _ = durable.IdentityOf(info) // a description by fstat(2) always has one
	stands, err := f.fs.Exists(to)
	if err == nil && stands && !whole {
		aside, err = f.aside(to)
	}
	if err != nil {
		return id, aside, err
	}
	return id, aside, f.fs.Rename(from, to)
}

// look describes the regular file of this length at path, if it stands there.
func (f *Files) look(path string, length int64) (id durable.Identity, whole bool, err error) {
	info, err := f.fs.Lstat(path)
	if durable.IsNotExist(err) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	id, _, ok := durable.IdentityOf(info)
	return id, ok && info.Mode().IsRegular() && info.Size() == length, nil
}

// Look tells whether the account holds a content file of this digest and length, and which file that is. It does not
// read the bytes. That it is there, or is not, is durable.
func (f *Files) Look(account, sha string, length int64) (id durable.Identity, whole bool, err error) {
	dir, s := f.shard(account, sha)
	s.mu.RLock()
	if s.durable {
		defer s.mu.RUnlock()
	} else {
		s.mu.RUnlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if made, err := f.fs.Exists(dir); err == nil && !made {
			return id, false, nil
		}
		if err := f.settle(s, dir); err != nil {
			return id, false, fmt.Errorf("look for content %s: %w", sha, err)
		}
	}
	if id, whole, err = f.look(f.blob(account, sha), length); err != nil {
		return id, false, fmt.Errorf("look for content %s: %w", sha, err)
	}
	return id, whole, nil
}

// SetAside takes the account's content under a digest out of its place, durably: the file id, whose bytes were read and
// are not those of the digest. Nobody finds a content there from then on, in this process or a later one, until Keep
// brings the bytes again. The file stays beside its place for a person to look at. It returns its path, which is empty
// where another file stands in the place by now, or none.
func (f *Files) SetAside(account, sha string, id durable.Identity) (path string, err error) {
	dir, s := f.shard(account, sha)
	s.mu.Lock()
	defer s.mu.Unlock()
	now, _, err := f.look(f.blob(account, sha), id.Size)
	if err == nil && now == id {
		s.durable = false
		path, err = f.aside(f.blob(account, sha))
	}
	if err == nil && !s.durable {
		err = f.settle(s, dir)
	}
	if err != nil {
		err = fmt.Errorf("set content %s aside: %w", sha, err)
	}
	return path, err
}

// aside renames what stands at a content's place. It never replaces what was set aside before: each has its number.
func (f *Files) aside(place string) (path string, err error) {
	for n := 1; ; n++ {
		path = place + damagedSuffix
		if n > 1 {
			path += "." + strconv.Itoa(n)
		}
		err := f.fs.RenameNew(place, path)
		if durable.IsExist(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		return path, nil
	}
}
