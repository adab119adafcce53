//go:build killpoints

package durable

import (
	"path/filepath"
	"slices"
	"strings"
)

// The named points of the kill sweep. Each is a place in the life of an attachment, told by operation and path, so that the
// code which is killed knows nothing of it. Where the place is no file operation, it is the nearest one on the side named:
//
//	after-temp-close       both    after the close of a temporary file of WriteFile or WriteNew, not yet renamed
//	after-managed-move     device  after the rename of a payload into spool/payload
//	after-manifest-commit  device  before the dispatcher first opens a payload whose move was settled: the transaction
//	                               that commits its manifest lies between the two
//	at-chunk-boundary      server  after an fsync of an upload's data file by an append: the bytes are durable, the
//	                               offset is not recorded and not answered
//	after-final-byte       server  before the first read of an upload's data file: its last byte is recorded, its
//	                               verification begins
//	before-registration    server  after the fsync of uploads/ behind the rename of a content into blobs/: what follows
//	                               is the record of the verification, its answer and the registration
//	after-registration     device  before the temporary file of receipts/ID is made: the server has registered, the
//	                               device knows it and has written nothing
//	after-delivered-move   device  after the rename of a payload to the delivered copies: its manifest is still in the
//	                               spool
const (
	pointTempClose      = "after-temp-close"
	pointManagedMove    = "after-managed-move"
	pointManifestCommit = "after-manifest-commit"
	pointChunk          = "at-chunk-boundary"
	pointFinalByte      = "after-final-byte"
	pointUnregistered   = "before-registration"
	pointRegistered     = "after-registration"
	pointDelivered      = "after-delivered-move"
)

func knownKillPoint(name string) bool {
	return slices.Contains([]string{
		pointTempClose, pointManagedMove, pointManifestCommit, pointChunk, pointFinalByte, pointUnregistered, pointRegistered,
		pointDelivered,
	}, name)
}

// killPoints remembers of earlier operations what tells two uses of one operation apart.
type killPoints struct {
	// unsettled holds payloads that were renamed into place and whose directory was not synced since, opened those that
	// were opened later.
	unsettled, opened map[string]bool
	// measured holds upload files that were read.
	measured map[string]bool
	// kept counts the contents that were kept beside an upload directory since its last fsync for one of them.
	kept map[string]int
}

func newKillPoints() killPoints {
	return killPoints{
		unsettled: map[string]bool{}, opened: map[string]bool{}, measured: map[string]bool{}, kept: map[string]int{},
	}
}

// before returns the point right before an operation, "" for none.
func (k *killPoints) before(op Op, path string) string {
	switch {
	case op == OpOpen && isPayload(path, "payload") && !k.unsettled[path] && !k.opened[path]:
		k.opened[path] = true
		return pointManifestCommit
	case op == OpRead && inDir(path, "uploads") && !k.measured[path]:
		k.measured[path] = true
		return pointFinalByte
	case op == OpCreate && inDir(path, "receipts"):
		return pointRegistered
	}
	return ""
}

// after returns the point right after an operation, "" for none.
func (k *killPoints) after(op Op, path string) string {
	switch op {
	case OpClose:
		if IsTemp(filepath.Base(path)) {
			return pointTempClose
		}
	case OpRename:
		switch {
		case isPayload(path, "payload"):
			k.unsettled[path] = true
			return pointManagedMove
		case isPayload(path, "delivered"):
			return pointDelivered
		}
		// blobs/XX/SHA256 stands beside uploads/; beside it, with a suffix, what was set aside.
		if blobs := filepath.Dir(filepath.Dir(path)); filepath.Base(blobs) == "blobs" && filepath.Ext(path) == "" {
			k.kept[filepath.Join(filepath.Dir(blobs), "uploads")]++
		}
	case OpSync:
		if inDir(path, "uploads") && !k.measured[path] {
			return pointChunk
		}
	case OpSyncDir:
		for payload := range k.unsettled {
			if filepath.Dir(payload) == path {
				delete(k.unsettled, payload)
			}
		}
		if k.kept[path] > 0 {
			k.kept[path]--
			return pointUnregistered
		}
	}
	return ""
}

// isPayload reports whether path is AREA/XX/ID, without its manifest.
func isPayload(path, area string) bool {
	return filepath.Base(filepath.Dir(filepath.Dir(path))) == area && !strings.Contains(filepath.Base(path), ".")
}

func inDir(path, dir string) bool { return filepath.Base(filepath.Dir(path)) == dir }
