package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/test/rig"
)

// finish waits until everything is delivered and no source is left in the capture directory, with every look held against
// the server, and then checks what the programs say.
func (sc *scene) finish(ctx context.Context) error {
	err := rig.Until(ctx, patience, "everything delivered and every source released", func() (bool, error) {
		if err := sc.mend(ctx); err != nil {
			return false, err
		}
		items, err := sc.list(ctx)
		if err != nil {
			return false, nil // it died just now, or is about to: mend looks
		}
		if n := rig.Delivered(items); n > sc.shown {
			err := sc.Compare(ctx, items)
			if errors.Is(err, rig.ErrUntrue) {
				return false, err
			}
			if err == nil {
				sc.shown = n
			}
			return false, nil
		}
		if len(items) > len(plan) {
			return false, fmt.Errorf("%w: %d attachments of %d files", rig.ErrUntrue, len(items), len(plan))
		}
		left, err := files(sc.Capture())
		return rig.Delivered(items) == len(plan) && len(left) == 0, err
	})
	if err != nil {
		return errors.Join(err, sc.describe(ctx))
	}
	if err := sc.Verify(ctx, record, sc.want); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var status control.Status
	if err := sc.CtlJSON(ctx, &status, "status", "--check"); err != nil {
		return err
	}
	owed, _ := status.Owed()
	if owed > 0 || status.NotTaken > 0 || len(status.Problems) > 0 || status.Sending.Channel != nil {
		return fmt.Errorf("%w: status is not clean: %+v", rig.ErrUntrue, status)
	}
	return nil
}

// describe is what a technician would look at, as an error's text.
func (sc *scene) describe(ctx context.Context) error {
	var text strings.Builder
	for _, args := range [][]string{{"status"}, {"list"}, {"list", "--not-taken"}} {
		out, errOut, code, err := sc.Ctl(ctx, args...)
		fmt.Fprintf(&text, "fieldgwctl %s (exit %d, %v):\n%s%s", strings.Join(args, " "), code, err, out, errOut)
	}
	left, err := files(sc.Capture())
	return errors.Join(fmt.Errorf("%s\nin the capture directory: %q", text.String(), left), err)
}

// leftovers checks what the stopped programs left on the disk.
func (sc *scene) leftovers(ctx context.Context) error {
	return errors.Join(sc.checkQueue(ctx), sc.checkDevice(), sc.checkServer(), sc.checkSources())
}

// checkQueue has the queue check itself: the file, every index and every journal.
func (sc *scene) checkQueue(ctx context.Context) (err error) {
	st, err := store.Open(filepath.Join(sc.Spool(), "queue.db"), queue.Schema(), store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	q := queue.New(st, queue.Options{})
	findings, err := q.Check(ctx)
	if err != nil {
		return err
	}
	intakes, damaged, err := q.Intakes()
	if err != nil {
		return err
	}
	if len(findings) > 0 || len(intakes) > 0 || len(damaged) > 0 {
		return fmt.Errorf("queue: %+v, intakes %+v %v", findings, intakes, damaged)
	}
	return nil
}

// checkDevice: four payloads among the delivered copies, as they were captured, a manifest and a receipt for each, and
// nothing else anywhere.
func (sc *scene) checkDevice() error {
	state := sc.Path("device", "state")
	all, err := files(state)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	left := map[string]bool{}
	for _, digest := range sc.want {
		left[digest] = true
	}
	var errs []error
	for _, path := range all {
		rel := strings.TrimPrefix(path, sc.Spool()+"/")
		first, _, _ := strings.Cut(rel, "/")
		switch {
		case durable.IsTemp(filepath.Base(path)):
			errs = append(errs, fmt.Errorf("temporary file left: %s", path))
		case first == "delivered" && !strings.HasSuffix(rel, ".manifest") && !strings.HasSuffix(rel, ".sidecar"):
			digest, err := digestOf(path)
			if err != nil || !left[digest] {
				errs = append(errs, fmt.Errorf("delivered copy %s: %s is none of the sources: %v", rel, digest, err))
			}
			delete(left, digest)
			counts["payloads"]++
		case first == "delivered":
			counts["manifests"]++
		case first == "receipts":
			counts["receipts"]++
		case rel == "queue.db", strings.TrimPrefix(path, state) == "/lock", strings.TrimPrefix(path, state) == "/accounts/current":
		default:
			errs = append(errs, fmt.Errorf("left on the device: %s", path))
		}
	}
	for _, what := range []string{"payloads", "manifests", "receipts"} {
		if counts[what] != len(plan) {
			errs = append(errs, fmt.Errorf("%d delivered %s, want %d", counts[what], what, len(plan)))
		}
	}
	return errors.Join(errs...)
}

// checkServer: four contents, no upload, no temporary file.
func (sc *scene) checkServer() error {
	all, err := files(sc.Path("server"))
	if err != nil {
		return err
	}
	contents := 0
	var errs []error
	for _, path := range all {
		switch {
		case durable.IsTemp(filepath.Base(path)), filepath.Base(filepath.Dir(path)) == "uploads":
			errs = append(errs, fmt.Errorf("left on the server: %s", path))
		case strings.Contains(path, "/blobs/"):
			contents++
			digest, err := digestOf(path)
			if err != nil || digest != filepath.Base(path) {
				errs = append(errs, fmt.Errorf("content %s has digest %s: %v", path, digest, err))
			}
		}
	}
	if contents != len(plan) {
		errs = append(errs, fmt.Errorf("%d contents on the server, want %d", contents, len(plan)))
	}
	return errors.Join(errs...)
}

// checkSources: what was submitted stands where it was, and so does the other name of the released file.
func (sc *scene) checkSources() error {
	for path, want := range map[string][]byte{
		sc.Path("album", plan[1].name): sc.content[1], sc.Path("source", plan[2].name): sc.content[2],
		sc.Path("source", plan[3].name): sc.content[3],
	} {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s is not as it was: %w", path, err)
		}
	}
	return nil
}

// files lists every file below dir that is no directory.
func files(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

func digestOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}
