package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// The internal buckets, and the keys of the first.
const (
	metaBucket  = "fieldgw.meta"
	tallyBucket = "fieldgw.counts"

	keySchema  = "schema"
	keyVersion = "version"
	keyEpoch   = "epoch"
	keyCreated = "created_at"
)

var (
	metaSealer  = newSealer(metaBucket)
	tallySealer = newSealer(tallyBucket)
)

// filePerm is for the owner alone: what is stored names people's work.
const filePerm = 0o600

// newMark stands in the name of a file under construction, which is hidden. durable.IsTemp knows such names too.
const newMark = ".fieldgw-tmp-new-"

// create makes a new, empty store: under a temporary name, complete, closed and synced, and only then published. A crash
// leaves at most a temporary, which the next Open removes. That somebody else published one meanwhile is fine.
func create(path string, schema Schema, fsys *durable.FS) (err error) {
	temp, err := tempName(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if rerr := fsys.Remove(temp); !durable.IsNotExist(rerr) {
				err = errors.Join(err, rerr)
			}
			err = noSpace(fmt.Errorf("create %s: %w", path, err))
		}
	}()
	if err := touch(fsys, temp); err != nil {
		return err
	}
	if err := isolated(func() error { return fill(temp, schema) }); err != nil {
		return err
	}
	if err := syncFile(fsys, temp); err != nil {
		return err
	}
	err = fsys.RenameNew(temp, path)
	if durable.IsExist(err) {
		return fsys.Remove(temp)
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// tempName makes a name for a file under construction beside path.
func tempName(path string) (string, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	dir, base := filepath.Split(path)
	return filepath.Join(dir, "."+base+newMark+hex.EncodeToString(random[:])), nil
}

func touch(fsys *durable.FS, path string) error {
	f, err := fsys.Create(path, filePerm)
	if err != nil {
		return err
	}
	return f.Close()
}

func syncFile(fsys *durable.FS, path string) error {
	f, err := fsys.OpenWrite(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fill turns an empty file into a store without entries. bbolt makes a new database of an empty file.
func fill(path string, schema Schema) (err error) {
	db, err := bolt.Open(path, filePerm, &bolt.Options{Timeout: lockPoll})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Update(func(raw *bolt.Tx) error {
		for _, name := range append([]string{metaBucket, tallyBucket}, schema.Buckets...) {
			if _, err := raw.CreateBucket([]byte(name)); err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
		}
		tallies := raw.Bucket([]byte(tallyBucket))
		for _, name := range schema.Buckets {
			key := []byte(name)
			if err := tallies.Put(key, tallySealer.seal(key, tally{}.encode())); err != nil {
				return err
			}
		}
		meta := raw.Bucket([]byte(metaBucket))
		for key, value := range map[string]string{
			keySchema:  schema.Name,
			keyVersion: strconv.Itoa(schema.Version),
			keyEpoch:   rand.Text(),
			keyCreated: time.Now().UTC().Format(time.RFC3339Nano),
		} {
			if err := putMeta(meta, key, value); err != nil {
				return err
			}
		}
		return nil
	})
}

func putMeta(meta *bolt.Bucket, key, value string) error {
	return meta.Put([]byte(key), metaSealer.seal([]byte(key), []byte(value)))
}

// noSpace marks an error that says that the volume is full.
func noSpace(err error) error {
	if durable.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// clearLeftovers removes what a crash during create or compact left beside path. The caller holds the lock of path.
func clearLeftovers(path string, fsys *durable.FS, logger *slog.Logger) error {
	dir, base := filepath.Dir(path), filepath.Base(path)
	var left []string
	err := fsys.List(dir, func(e fs.DirEntry) error {
		if strings.HasPrefix(e.Name(), "."+base+newMark) {
			left = append(left, filepath.Join(dir, e.Name()))
		}
		return nil
	})
	if err != nil || len(left) == 0 {
		return err
	}
	for _, temp := range left {
		if err := fsys.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		logger.Warn("removed a store file that was never finished", logging.KeyPath, temp)
	}
	return fsys.SyncDir(dir)
}
