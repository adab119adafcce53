package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

const (
	dirPerm  fs.FileMode = 0o700
	filePerm fs.FileMode = 0o600

	partSuffix     = ".part"
	manifestSuffix = ".manifest"
	sidecarSuffix  = ".sidecar"
)

// Area is a part of the managed storage.
type Area string

// The areas.
const (
	Staging   Area = "staging"
	Payloads  Area = "payload"
	Delivered Area = "delivered"
)

// Spool is the managed storage below one directory. It holds no state and may be used concurrently, except that one ID
// must not be worked on by two goroutines at once.
type Spool struct {
	fs  *durable.FS
	dir string
}

// Open makes the directories that are missing, durably and closed to every other user, and returns the spool.
func Open(fsys *durable.FS, dir string) (*Spool, error) {
	s := &Spool{fs: fsys, dir: dir}
	for _, d := range []string{s.areaDir(Staging), s.areaDir(Payloads), s.areaDir(Delivered), s.receiptsDir(), s.outboxDir()} {
		if err := fsys.MkdirAll(d, dirPerm); err != nil {
			return nil, fmt.Errorf("open spool: %w", err)
		}
	}
	return s, nil
}

func (s *Spool) areaDir(a Area) string {
	if a == Delivered {
		return filepath.Join(s.dir, "delivered")
	}
	return filepath.Join(s.dir, "spool", string(a))
}

func (s *Spool) receiptsDir() string { return filepath.Join(s.dir, "receipts") }
func (s *Spool) outboxDir() string   { return filepath.Join(s.dir, "outbox") }

func (s *Spool) shardDir(a Area, id attachment.ID) string {
	return filepath.Join(s.areaDir(a), id.Shard())
}

// Path returns where the payload of an ID lies, or would lie, in an area.
func (s *Spool) Path(a Area, id attachment.ID) string {
	if a == Staging {
		return filepath.Join(s.areaDir(Staging), string(id)+partSuffix)
	}
	return filepath.Join(s.shardDir(a, id), string(id))
}

func (s *Spool) manifestPath(a Area, id attachment.ID) string {
	return filepath.Join(s.shardDir(a, id), string(id)+manifestSuffix)
}

func (s *Spool) sidecarPath(a Area, id attachment.ID) string {
	return filepath.Join(s.shardDir(a, id), string(id)+sidecarSuffix)
}

// Locate says in which of the areas a secured payload lies; found is false when it is in neither.
func (s *Spool) Locate(id attachment.ID) (area Area, found bool, err error) {
	for _, a := range []Area{Payloads, Delivered} {
		ok, err := s.fs.Exists(s.Path(a, id))
		if err != nil {
			return "", false, fmt.Errorf("locate %s: %w", id, err)
		}
		if ok {
			return a, true, nil
		}
	}
	return "", false, nil
}

// Fresh reports whether nothing was ever kept here: no payload, no delivered copy, no receipt, nothing in staging. A queue
// that is missing beside a spool that is not fresh was lost.
func (s *Spool) Fresh() (bool, error) {
	fresh := true
	look := func(string) error {
		fresh = false
		return errFound
	}
	for _, dir := range []string{s.areaDir(Staging), s.areaDir(Payloads), s.areaDir(Delivered), s.receiptsDir(), s.outboxDir()} {
		if err := s.files(dir, look); err != nil && !errors.Is(err, errFound) {
			return false, fmt.Errorf("look into the spool: %w", err)
		}
	}
	return fresh, nil
}

var errFound = errors.New("found")

// files visits the files in a directory and in the directories right below it; temporary ones do not count.
func (s *Spool) files(dir string, visit func(path string) error) error {
	return s.fs.List(dir, func(e fs.DirEntry) error {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			return s.files(path, visit)
		case durable.IsTemp(e.Name()):
			return nil
		}
		return visit(path)
	})
}

// Found is what Scan sees of one ID in one area.
type Found struct {
	Area Area
	ID   attachment.ID
	// Payload, Manifest and Sidecar say which of the files are there. Staging has payloads only.
	Payload, Manifest, Sidecar bool
	// Stray is the path of a file whose name is not ours; ID is empty then. Nothing is ever done to it.
	Stray string
}

// Scan visits everything in the three areas, a directory at a time. Temporary files that a crash left are removed on the
// way. An error of visit ends it.
func (s *Spool) Scan(visit func(Found) error) error {
	if err := s.ScanStaging(visit); err != nil {
		return err
	}
	for _, area := range []Area{Payloads, Delivered} {
		var shards []string
		err := s.fs.List(s.areaDir(area), func(e fs.DirEntry) error {
			path := filepath.Join(s.areaDir(area), e.Name())
			if !e.IsDir() {
				return visit(Found{Area: area, Stray: path})
			}
			shards = append(shards, path)
			return nil
		})
		if err != nil {
			return fmt.Errorf("scan spool: %w", err)
		}
		for _, shard := range shards {
			if err := s.scanDir(area, shard, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// ScanStaging is Scan for staging alone.
func (s *Spool) ScanStaging(visit func(Found) error) error {
	return s.scanDir(Staging, s.areaDir(Staging), visit)
}

func (s *Spool) scanDir(area Area, dir string, visit func(Found) error) error {
	found := map[attachment.ID]*Found{}
	var temps []string
	err := s.fs.List(dir, func(e fs.DirEntry) error {
		name := e.Name()
		if durable.IsTemp(name) {
			temps = append(temps, filepath.Join(dir, name))
			return nil
		}
		id, kind, ok := parseName(area, name)
		if !ok || e.IsDir() || (area != Staging && filepath.Base(dir) != id.Shard()) {
			return visit(Found{Area: area, Stray: filepath.Join(dir, name)})
		}
		f := found[id]
		if f == nil {
			f = &Found{Area: area, ID: id}
			found[id] = f
		}
		f.Payload = f.Payload || kind == ""
		f.Manifest = f.Manifest || kind == manifestSuffix
		f.Sidecar = f.Sidecar || kind == sidecarSuffix
		return nil
	})
	if err != nil {
		return fmt.Errorf("scan spool: %w", err)
	}
	for _, temp := range temps {
		if err := s.fs.Remove(temp); err != nil && !durable.IsNotExist(err) {
			return fmt.Errorf("scan spool: %w", err)
		}
	}
	for _, f := range found {
		if err := visit(*f); err != nil {
			return err
		}
	}
	return nil
}

// parseName returns the ID in a file's name and the kind of the file: the suffix of what lies beside a payload, or nothing
// for the payload itself.
func parseName(area Area, name string) (id attachment.ID, kind string, ok bool) {
	if area == Staging {
		base, cut := strings.CutSuffix(name, partSuffix)
		id, err := attachment.ParseID(base)
		return id, "", cut && err == nil
	}
	base := name
	for _, suffix := range []string{manifestSuffix, sidecarSuffix} {
		if cut, found := strings.CutSuffix(name, suffix); found {
			base, kind = cut, suffix
		}
	}
	id, err := attachment.ParseID(base)
	return id, kind, err == nil
}
