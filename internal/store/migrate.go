package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/logging"
)

// migrate takes the file from the version found to the schema's, in one transaction.
func (s *Store) migrate(schema Schema, found *contents) error {
	if found.version == schema.Version {
		return nil
	}
	err := s.submit(nil, nil, func(tx *Tx) error {
		tx.allowed = map[string]sealer{}
		var gone []string
		for name := range found.buckets {
			if strings.HasPrefix(name, ours) {
				continue
			}
			tx.allowed[name] = newSealer(name)
			if !slices.Contains(schema.Buckets, name) {
				gone = append(gone, name)
			}
		}
		for _, name := range schema.Buckets {
			if _, ok := tx.allowed[name]; ok {
				continue
			}
			tx.allowed[name] = newSealer(name)
			if err := tx.create(name); err != nil {
				return err
			}
		}
		for v := found.version; v < schema.Version; v++ {
			if err := schema.Migrations[v](tx); err != nil {
				return fmt.Errorf("step from version %d: %w", v, err)
			}
		}
		for _, name := range gone {
			if err := tx.drop(name); err != nil {
				return err
			}
		}
		return tx.setVersion(schema.Version)
	})
	if err != nil {
		return err
	}
	s.opts.Logger.Info("migrated the store", logging.KeyPath, s.path, logging.KeyVersion, schema.Version)
	return nil
}

// create makes an empty bucket; flush will write its count.
func (tx *Tx) create(name string) error {
	tx.inBolt = true
	raw, err := tx.raw.CreateBucket([]byte(name))
	tx.inBolt = false
	if err != nil {
		return fmt.Errorf("create bucket %s: %w", name, err)
	}
	tx.buckets[name] = &Bucket{tx: tx, name: name, seal: tx.allowed[name], raw: raw, kept: &tally{}, changed: true}
	tx.writes++
	return nil
}

// drop removes a bucket that the schema no longer has, and its count.
func (tx *Tx) drop(name string) error {
	if n := tx.Bucket(name).Count(); n > 0 {
		return fmt.Errorf("remove bucket %s: %w: it still holds %d keys", name, errSchema, n)
	}
	delete(tx.buckets, name)
	tx.writes++
	tx.inBolt = true
	err := tx.raw.DeleteBucket([]byte(name))
	tx.inBolt = false
	if err != nil {
		return fmt.Errorf("remove bucket %s: %w", name, err)
	}
	tx.inBolt = true
	err = tx.tallies.raw.Delete([]byte(name))
	tx.inBolt = false
	return err
}

func (tx *Tx) setVersion(version int) error {
	meta := tx.open(metaBucket, metaSealer)
	tx.writes++
	tx.inBolt = true
	err := putMeta(meta.raw, keyVersion, strconv.Itoa(version))
	tx.inBolt = false
	return err
}
