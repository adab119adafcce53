package plantroom

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"image/jpeg"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const fixtureSeed = 20260302

// tool runs a foreign program on its arguments. Where the program is not installed, it leaves a
// subtest whose name says what was not run, and returns false.
func tool(t *testing.T, debianPackage, name string, args ...string) (output string, ran bool) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Run("not run: "+name, func(t *testing.T) {
			t.Logf("%s %s: not run, because %s is not installed (Debian package %s)", name, strings.Join(args, " "), name, debianPackage)
		})
		return "", false
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
	return string(out), true
}

// Proves that the fixture is what Generate says it is: names, sizes, digests and media types agree
// with the files, all contents differ, the photographs decode here and in libjpeg and carry the
// promised EXIF data, and the same seed gives the same photograph again.
func TestGenerate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "fixture")
	files, err := Generate(dir, fixtureSeed)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	digests := map[string]bool{}
	for _, f := range files {
		names, digests[f.SHA256] = append(names, f.Name), true
		data, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if f.Path != filepath.Join(dir, f.Name) || f.Length != int64(len(data)) || f.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%+v does not describe a file of %d bytes with digest %x", f, len(data), sum)
		}
		if sniffed := http.DetectContentType(data); sniffed != f.MediaType {
			t.Errorf("%s: media type %s, sniffed %s", f.Name, f.MediaType, sniffed)
		}
		if f.MediaType == "application/pdf" {
			checkReport(t, f.Path, data)
			continue
		}
		checkPhoto(t, f, data)
	}
	if got := strings.Join(names, " "); got != "photo-1.jpg photo-2.jpg photo-3.jpg report-signed.pdf" {
		t.Errorf("generated %s", got)
	}
	if len(digests) != len(files) {
		t.Errorf("%d different contents in %d files", len(digests), len(files))
	}
	again := sha256.New()
	if err := Photo(again, mix(fixtureSeed, 2)|1); err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(again.Sum(nil)) != files[1].SHA256 {
		t.Error("the same seed gave a different photograph")
	}
}

func checkPhoto(t *testing.T, f File, data []byte) {
	t.Helper()
	if f.Length < 2<<20 || f.Length > 5<<20 {
		t.Errorf("%s has %d bytes, want 2-5 MiB", f.Name, f.Length)
	}
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("decode %s: %v", f.Name, err)
	}
	if size := img.Bounds().Size(); size.X != fullShot.width || size.Y != fullShot.height {
		t.Errorf("%s is %v", f.Name, size)
	}
	want := uint16(1)
	if f.Name == "photo-2.jpg" {
		want = 6
	}
	checkEXIF(t, data, want)
	tool(t, "libjpeg-turbo-progs", "djpeg", "-strict", "-outfile", os.DevNull, f.Path)
}

// checkEXIF reads both directories independently of the code that wrote them.
func checkEXIF(t *testing.T, data []byte, orientation uint16) {
	t.Helper()
	le := binary.LittleEndian
	if !bytes.HasPrefix(data[6:], []byte("Exif\x00\x00II*\x00")) {
		t.Fatalf("no EXIF segment in % x", data[:16])
	}
	tiff := data[12 : 4+int(binary.BigEndian.Uint16(data[4:]))]
	entries := map[uint16][]byte{} // the eight bytes of count and value
	read := func(at uint32) {
		for i := range uint32(le.Uint16(tiff[at:])) {
			entry := tiff[at+2+12*i:][:12]
			entries[le.Uint16(entry)] = entry[4:]
		}
	}
	text := func(tag uint16) string {
		e := entries[tag]
		if e == nil {
			t.Fatalf("no tag %#x", tag)
		}
		value := tiff[le.Uint32(e[4:]):][:le.Uint32(e)]
		return string(bytes.TrimSuffix(value, []byte{0}))
	}
	read(le.Uint32(tiff[4:]))
	read(le.Uint32(entries[0x8769][4:]))
	if text(0x010f) != "fieldgw" || text(0x0110) != "plantroom" {
		t.Errorf("make %q, model %q", text(0x010f), text(0x0110))
	}
	if got := le.Uint16(entries[0x0112][4:]); got != orientation {
		t.Errorf("orientation %d, want %d", got, orientation)
	}
	if _, err := time.Parse("2006:01:02 15:04:05", text(0x9003)); err != nil {
		t.Errorf("date of the photograph: %v", err)
	}
}

// Proves that bulk photographs are whole JPEGs of the promised size, all different, and that their
// bytes follow from the seed.
func TestSmallJPEG(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		var first, second bytes.Buffer
		if err := errors.Join(SmallJPEG(&first, seed), SmallJPEG(&second, seed)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("seed %d gave two different photographs", seed)
		}
		if n := first.Len(); n < 4<<10 || n > 12<<10 {
			t.Errorf("seed %d gave %d bytes, want 4-12 KiB", seed, n)
		}
		seen[first.String()] = true
		if _, err := jpeg.Decode(&first); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d different photographs from 200 seeds", len(seen))
	}
}

// Proves that a writer's error comes back, wherever in the output it happens.
func TestWriterError(t *testing.T) {
	for _, room := range []int{0, 20, 1000} {
		for name, write := range map[string]func(io.Writer, uint64) error{"small": SmallJPEG, "report": SignedPDF} {
			if err := write(&fullDisk{room}, 1); !errors.Is(err, errFull) {
				t.Errorf("%s with room for %d bytes: %v", name, room, err)
			}
		}
	}
}

// Proves that a failed Generate leaves no half file and says where it failed.
func TestGenerateError(t *testing.T) {
	dir := t.TempDir()
	f := File{Path: filepath.Join(dir, "half")}
	err := f.write(func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, errFull)
	})
	if !errors.Is(err, errFull) {
		t.Errorf("write: %v", err)
	}
	if _, err := os.Stat(f.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half file after an error: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "photo-1.jpg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if files, err := Generate(dir, 1); err == nil || files != nil || !strings.Contains(err.Error(), "photo-1.jpg") {
		t.Errorf("Generate over a directory: %v, %v", files, err)
	}
}

var errFull = errors.New("disk full")

type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}
