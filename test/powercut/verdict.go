package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// What can be broken.
const (
	kindLoss      = "loss"      // captured bytes are nowhere, or an adopted attachment is unknown
	kindFalse     = "false"     // shown as delivered, and the server does not have it
	kindDuplicate = "duplicate" // two attachments of one source
	kindBackwards = "backwards" // a confirmed offset is lower than before, or the server lost what it had confirmed
	kindResent    = "resent"    // more was sent again than a chunk for each transfer under way
	kindStuck     = "stuck"     // not finished in time, or a person is asked for help
	kindStart     = "start"     // the program does not start on what the cut left
	kindEarly     = "early"     // the control socket showed what was neither logged nor durable
)

var kinds = []string{kindLoss, kindFalse, kindDuplicate, kindBackwards, kindResent, kindStuck, kindStart, kindEarly}

// violation is a promise that did not hold.
type violation struct{ kind, text string }

// recover starts the program on what the cut left and compares with what was promised before.
func (c *cut) recover(ctx context.Context, f *facts, res *result) error {
	began := time.Now()
	start := c.rig.StartDaemon
	if c.role == roleServer {
		start = c.startServer
	}
	if err := start(ctx); err != nil {
		res.add(kindStart, "%v", err)
		return ctx.Err()
	}
	res.recovery += time.Since(began)
	if c.restartOther {
		if err := c.rig.StartDaemon(ctx); err != nil {
			res.add(kindStart, "the daemon, restarted in order: %v", err)
			return ctx.Err()
		}
	}
	items, err := c.rig.Items(ctx)
	if err != nil {
		return err
	}
	registered, err := c.rig.Registered(ctx)
	if err != nil {
		return err
	}
	kept(f, items, res)
	c.honest(ctx, items, registered, res)
	return nil
}

// startServer waits for the server's port: while the server was down, the kernel may have given it to a connection.
func (c *cut) startServer(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(portLimit); ; {
		err := c.rig.StartServer(ctx)
		if err == nil || !strings.Contains(err.Error(), "address already in use") || time.Now().After(limit) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// secured looks, before anything is started, for what was logged as adopted or delivered: payload, travelling manifest
// and receipt, in the places that ARCHITECTURE.md section 6 names.
func (c *cut) secured(f *facts, res *result) error {
	if c.role == roleServer { // the device's volume was not cut, and the device goes on moving things
		return nil
	}
	for id, state := range f.state {
		shard := id[len(id)-2:]
		payload := filepath.Join(c.rig.Spool(), "spool", "payload", shard, id)
		if state == attachment.Reconciled {
			info, err := os.Stat(filepath.Join(c.rig.Spool(), "receipts", id))
			if err != nil || info.Size() == 0 {
				res.add(kindLoss, "%s was logged as delivered and its receipt is missing or empty", id)
			}
			if _, err := os.Stat(payload); errors.Is(err, fs.ErrNotExist) {
				payload = filepath.Join(c.rig.Spool(), "delivered", shard, id)
			}
		}
		manifest, err := os.Stat(payload + ".manifest")
		if errors.Is(err, fs.ErrNotExist) && state == attachment.Reconciled { // between the two renames of its last step
			manifest, err = os.Stat(filepath.Join(c.rig.Spool(), "spool", "payload", shard, id+".manifest"))
		}
		if err != nil || manifest.Size() == 0 {
			res.add(kindLoss, "%s was logged as %s and its travelling manifest is missing or empty", id, state)
		}
		sum, err := digest(payload)
		if err != nil {
			res.add(kindLoss, "%s was logged as %s and its payload is missing: %v", id, state, err)
		} else if !slices.ContainsFunc(c.files, func(file captured) bool { return file.sha256 == sum }) {
			res.add(kindLoss, "%s was logged as %s and its payload is damaged", id, state)
		}
	}
	return nil
}

// untaken looks, before anything is started, for every captured file: it must be at its source or be held by the
// daemon's staging or spool, whole. Of a careless program only what was adopted must be; the rest is captured again, and
// what the cut left of it at its source, mostly an empty file, is removed as its owner would.
func (c *cut) untaken(res *result) error {
	if c.role == roleServer {
		return nil
	}
	held, err := digests(c.rig.Capture(), filepath.Join(c.rig.Spool(), "spool"), filepath.Join(c.rig.Spool(), "delivered"))
	if err != nil {
		return err
	}
	for _, file := range c.files[:c.dropped] {
		var err error
		sum, missing := digest(c.source(file))
		switch {
		case held[file.sha256] && c.careless && missing == nil && sum != file.sha256:
			err = os.Remove(c.source(file))
		case held[file.sha256]:
		case c.careless:
			err = c.capture(file)
		default:
			res.add(kindLoss, "%s is neither at its source nor in the spool after the cut", file.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// digests returns the SHA-256 of every file below the directories.
func digests(dirs ...string) (map[string]bool, error) {
	held := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			sum, err := digest(path)
			if errors.Is(err, fs.ErrNotExist) { // the daemon that was not cut goes on meanwhile
				return nil
			}
			held[sum] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, file.Close())
}

// kept holds what the device shows now against what it had logged and shown before.
func kept(f *facts, items []control.Item, res *result) {
	now := map[string]control.Item{}
	for _, i := range items {
		now[string(i.ID)] = i
	}
	for id, state := range f.state {
		i, ok := now[id]
		done := state == attachment.Reconciled || state == attachment.Released
		switch {
		case !ok:
			res.add(kindLoss, "%s was logged as %s and is unknown", id, state)
		case done && i.Condition != attachment.ShownDelivered:
			res.add(kindLoss, "%s was logged as delivered and is %s", id, i.Condition)
		}
	}
	for id, before := range f.shown {
		i, ok := now[id]
		logged, adopted := f.state[id]
		switch {
		case !ok && !adopted:
			res.add(kindEarly, "%s was listed before its adoption was durable, and is unknown", id)
			continue
		case !ok: // said above
			continue
		case i.SHA256.String() != before.sha256:
			res.add(kindLoss, "%s was listed with %s and has %s", id, before.sha256, i.SHA256)
		case before.delivered && i.Condition != attachment.ShownDelivered && logged != attachment.Reconciled:
			res.add(kindEarly, "%s was listed as delivered before that was durable, and is %s", id, i.Condition)
		}
		if i.ConfirmedBytes != nil && *i.ConfirmedBytes < before.confirmed {
			res.add(kindBackwards, "%s had %d confirmed bytes and has %d", id, before.confirmed, *i.ConfirmedBytes)
		}
	}
}

// honest holds what the device calls delivered against the server, content included.
func (c *cut) honest(ctx context.Context, items []control.Item, registered map[string]wire.Attachment, res *result) {
	for _, i := range items {
		if i.Condition != attachment.ShownDelivered {
			continue
		}
		a, ok := registered[string(i.ID)]
		if !ok || a.Receipt.Length != i.Length || a.Receipt.SHA256 != i.SHA256.String() {
			res.add(kindFalse, "%s is shown as delivered and the server has registered no such thing", i.ID)
			continue
		}
		switch stored, err := c.rig.ContentDigest(ctx, string(i.ID)); {
		case err != nil:
			res.add(kindFalse, "%s is shown as delivered and cannot be downloaded: %v", i.ID, err)
		case stored != i.SHA256.String():
			res.add(kindFalse, "%s is shown as delivered and the server stored %s", i.ID, stored)
		}
	}
}

// finish lets everything come to its end and judges it. written waits for the writer.
func (c *cut) finish(ctx context.Context, f *facts, res *result, written func() error) error {
	items, err := c.delivered(ctx)
	if err != nil {
		res.add(kindStuck, "%v", err)
		return ctx.Err()
	}
	if err := written(); err != nil {
		return err
	}
	registered, err := c.rig.Registered(ctx)
	if err != nil {
		return err
	}
	kept(f, items, res)
	c.honest(ctx, items, registered, res)
	byName := map[string]int{}
	for _, i := range items {
		byName[i.Filename.Exact()]++
	}
	for _, file := range c.files {
		if n := byName[file.name]; n > 1 {
			res.add(kindDuplicate, "%s became %d attachments", file.name, n)
		}
	}
	if len(registered) != len(c.files) {
		res.add(kindDuplicate, "the server registered %d attachments of %d files", len(registered), len(c.files))
	}
	if len(res.broken) == 0 { // everything once more, with the parents
		if err := c.rig.Verify(ctx, record, c.want()); err != nil {
			res.add(kindLoss, "%v", err)
		}
	}
	c.sentAgain(f, res)
	return c.backwards(res)
}

// delivered waits until every file is delivered and returns what is listed then.
func (c *cut) delivered(ctx context.Context) ([]control.Item, error) {
	limit := time.After(finishLimit)
	tick := time.NewTicker(5 * look)
	defer tick.Stop()
	var why string
	for {
		page, err := c.ctl.List(ctx, control.ListQuery{Limit: control.MaxPage})
		n := 0
		for _, i := range page.Items {
			switch i.Condition {
			case attachment.ShownDelivered:
				n++
			case attachment.ShownAttention, attachment.ShownReview:
				return nil, fmt.Errorf("%s (%s) is %s: %+v", i.Filename.Printable(), i.ID, i.Condition, i.Waiting)
			}
		}
		if err == nil && n >= len(c.files) && n == len(page.Items) {
			return page.Items, nil
		}
		why = fmt.Sprintf("%d of %d delivered, %d attachments, %v", n, len(c.files), len(page.Items), err)
		select {
		case <-tick.C:
		case <-limit:
			return nil, fmt.Errorf("not finished within %s: %s", finishLimit, why)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// backwards finds what the daemon itself logged about a server that forgot.
func (c *cut) backwards(res *result) error {
	all, err := readLog(c.rig.Log("fieldgwd"))
	for _, t := range all {
		if t.event == attachment.EventLost {
			res.add(kindBackwards, "%s: the server lost what it had confirmed", t.id)
		}
	}
	return err
}

// What goes up beside the payload, in bytes: TLS handshakes and records, and HTTP requests with their headers. Measured on
// a hundred runs; the sum is at most 3 KiB too large.
const (
	perConnection = 2 * kib
	perAttachment = 2 * kib
	perChunk      = kib / 2
)

// sentAgain measures how many bytes of payload were sent more than once, from what passed the link. Allowed is a chunk for
// each transfer under way, and the requests that a cut makes again.
func (c *cut) sentAgain(f *facts, res *result) {
	payload, chunks := int64(0), int64(0)
	for _, file := range c.files {
		payload += int64(len(file.content))
		chunks += int64(len(file.content)+chunk-1) / chunk
	}
	stats, files := c.rig.Link.Stats(), int64(len(c.files))
	overhead := stats.Connections*perConnection + files*perAttachment + chunks*perChunk
	res.resent = max(0, stats.BytesUp-payload-overhead)
	transfers := int64(len(f.sending))
	if allowed := transfers*(chunk+chunk/64) + files*(perAttachment+perChunk); res.resent > allowed {
		res.add(kindResent, "%d bytes went up again, %d allowed for %d transfers under way", res.resent, allowed, transfers)
	}
}

// texts joins violations for printing.
func texts(found []violation) string {
	lines := make([]string, 0, len(found))
	for _, v := range found {
		lines = append(lines, v.kind+": "+v.text)
	}
	return strings.Join(lines, "\n    ")
}
