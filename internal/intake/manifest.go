package intake

import (
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// Validator looks at the readable structure of a payload. It never alters or refuses anything: invalid structure is
// still evidence.
type Validator interface {
	// Structure returns the verdict to record, and the code with which a person must look at the payload, or "".
	Structure(head []byte, length int64) (verdict string, problem attachment.Code)
}

// lengthOnly is the validator until media structure is read: an empty file is a problem, everything else unchecked.
type lengthOnly struct{}

func (lengthOnly) Structure(_ []byte, length int64) (string, attachment.Code) {
	if length == 0 {
		return attachment.StructureUnchecked, attachment.NeedsEmptyFile
	}
	return attachment.StructureUnchecked, ""
}

// headSize is how many bytes of a payload are looked at for its media type and structure.
const headSize = 512

// build makes the adoption record of a staged payload.
func (in *Intake) build(it queue.Intake, sum attachment.Fingerprint, head []byte, modified time.Time) queue.Adoption {
	structure, code := in.Validator.Structure(head, sum.Length)
	m := attachment.Manifest{
		Version: attachment.ManifestVersion, ID: it.ID, State: attachment.Captured, Parent: it.Parent, Binding: it.Binding,
		Filename: it.Filename, MediaType: mediaType(it.Filename.Text, head), Length: sum.Length,
		HashAlgorithm: attachment.HashAlgorithm, SHA256: sum.SHA256, CapturedAt: modified.UTC().Round(0),
		CapturedAtSource: "mtime", AdoptedAt: in.Now().UTC().Round(0), Role: attachment.RoleOriginal, Structure: structure,
		Custody: it.Way, Source: it.Source, Submission: it.Submission,
	}
	m.Source.ReleasePending = it.ReleaseSource
	m.Delivery.ProposedMediaID = string(it.ID)
	if modified.IsZero() {
		m.CapturedAt, m.CapturedAtSource = m.AdoptedAt, "adoption"
	}
	if m.Binding.Wait > 0 {
		m.Binding.Until = m.AdoptedAt.Add(m.Binding.Wait)
	}
	a := queue.Adoption{Manifest: m, Segments: sum.Segments, Problem: unnamed(&m)}
	if code != "" {
		a.Problem = &attachment.Problem{Code: code}
	}
	return a
}

// unnamed is why a person must look at an attachment whose watch goes by a pattern that its path does not match.
func unnamed(m *attachment.Manifest) *attachment.Problem {
	if m.Binding.Rule != attachment.BindPattern || !m.Parent.LocalID.Empty() {
		return nil
	}
	return &attachment.Problem{Code: attachment.NeedsPatternMismatch, Detail: "the path is " + m.Source.RelPath.Printable()}
}

// travelling is the manifest to lie beside the payload. That a person must look at it travels too: a queue that is made anew
// from it must not send what was held.
func travelling(a queue.Adoption) *attachment.Travelling {
	t := &attachment.Travelling{Manifest: a.Manifest, Segments: a.Segments}
	if a.Problem != nil {
		problem := *a.Problem
		problem.Since = a.Manifest.AdoptedAt
		t.Manifest.State, t.Manifest.Problem = attachment.Attention, &problem
	}
	return t
}

// byExtension names media types that content sniffing does not know or takes for something more general.
var byExtension = map[string]string{
	".heic": "image/heic", ".heif": "image/heif", ".tif": "image/tiff", ".tiff": "image/tiff", ".dng": "image/x-adobe-dng",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".json": "application/json", ".csv": "text/csv", ".mov": "video/quicktime", ".m4a": "audio/mp4", ".las": "application/vnd.las",
}

// mediaType goes by content (WHATWG MIME Sniffing) and asks the name only where content says nothing.
func mediaType(name string, head []byte) string {
	sniffed := http.DetectContentType(head)
	general := sniffed == "application/octet-stream" || sniffed == "application/zip" ||
		strings.HasPrefix(sniffed, "text/plain") || sniffed == "video/mp4"
	if byName, ok := byExtension[strings.ToLower(filepath.Ext(name))]; ok && general {
		return byName
	}
	return sniffed
}

// headWriter keeps the first bytes that pass.
type headWriter struct{ head []byte }

func (w *headWriter) Write(p []byte) (int, error) {
	if room := headSize - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
