// Package plantroom makes the plant-room fixture: what an inspector brings back from one visit to a
// plant room, as real files. It owns three rendered photographs of 2–5 MiB with EXIF data, one
// digitally signed inspection report of about 620 KiB, and a small photograph for bulk tests.
//
// It promises that every JPEG decodes, that its bytes depend on the seed alone (for one Go release:
// image/jpeg may encode differently in another), and that the report carries a CMS signature that
// covers the whole file and that foreign verifiers accept. The signing key is made anew for each
// report and thrown away, so two reports of one seed have equal length but not equal bytes.
//
// Read Generate first, then Photo (photo.go, scene.go, sensor.go) and SignedPDF (pdf.go, sign.go).
package plantroom

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// File describes one file that Generate wrote.
type File struct {
	Name      string // base name, such as "photo-1.jpg"
	Path      string // dir joined with Name
	Length    int64  // bytes
	SHA256    string // lower-case hex of the whole file
	MediaType string // "image/jpeg" or "application/pdf"
}

// Generate writes photo-1.jpg, photo-2.jpg, photo-3.jpg and report-signed.pdf into dir, which it
// creates if need be, and returns them in that order. The photographs differ from each other;
// photo-2.jpg is taken upright (EXIF orientation 6). Files of these names are overwritten. The
// files are closed but not synced: a fixture is made again rather than recovered. On an error the
// file that was being written is removed and nothing is returned.
func Generate(dir string, seed uint64) ([]File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make fixture directory: %w", err)
	}
	// The lowest bit of a photograph's seed is its orientation, see Photo.
	landscape := func(n uint64) uint64 { return mix(seed, n) &^ 1 }
	portrait := func(n uint64) uint64 { return mix(seed, n) | 1 }
	plan := []struct {
		name, mediaType string
		seed            uint64
		write           func(io.Writer, uint64) error
	}{
		{"photo-1.jpg", "image/jpeg", landscape(1), Photo},
		{"photo-2.jpg", "image/jpeg", portrait(2), Photo},
		{"photo-3.jpg", "image/jpeg", landscape(3), Photo},
		{"report-signed.pdf", "application/pdf", mix(seed, 4), SignedPDF},
	}
	files := make([]File, 0, len(plan))
	for _, p := range plan {
		f := File{Name: p.name, Path: filepath.Join(dir, p.name), MediaType: p.mediaType}
		if err := f.write(func(w io.Writer) error { return p.write(w, p.seed) }); err != nil {
			return nil, fmt.Errorf("write %s: %w", p.name, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// write creates f.Path from content and records length and digest of the bytes on their way.
func (f *File) write(content func(io.Writer) error) (err error) {
	out, err := os.Create(f.Path)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(f.Path))
		}
	}()
	sum := sha256.New()
	if err := content(io.MultiWriter(out, sum)); err != nil {
		return err
	}
	if f.Length, err = out.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}
