package plantroom

import (
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"time"
)

// shot is how one photograph is taken: stored size in pixels, noise (see expose), JPEG quality.
type shot struct {
	width, height, noise, quality int
}

var (
	fullShot   = shot{width: 2592, height: 1944, noise: 96, quality: 94}
	reportShot = shot{width: 1440, height: 1080, noise: 72, quality: 90}
	smallShot  = shot{width: 128, height: 96, noise: 64, quality: 85}
)

// Photo writes a photograph of a plant room as a baseline JPEG (2592 by 1944 stored pixels, 2–5 MiB)
// with an EXIF block: Make "fieldgw", Model "plantroom", DateTimeOriginal and Orientation. An odd
// seed is a picture taken upright: the same pixel rows, Orientation 6 instead of 1. The bytes depend
// on seed alone. It needs about 8 MiB of memory and returns only errors of w.
func Photo(w io.Writer, seed uint64) error {
	return fullShot.take(w, seed)
}

// SmallJPEG writes the same kind of photograph at 128 by 96 pixels, 4–12 KiB, cheap enough for
// thousands. The bytes depend on seed alone; it returns only errors of w.
func SmallJPEG(w io.Writer, seed uint64) error {
	return smallShot.take(w, seed)
}

func (s shot) take(w io.Writer, seed uint64) error {
	orientation := uint16(1)
	if seed%2 == 1 {
		orientation = 6
	}
	r := newRandom(seed)
	taken := time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC).Add(time.Duration(r.between(0, 28_800)) * time.Second)
	c := newCanvas(s.width, s.height, orientation == 6)
	c.plantRoom(r)
	expose(c.img, s.noise, r)
	return writeJPEG(w, c.img, s.quality, s.exif(orientation, taken))
}

// writeJPEG encodes img with app1 directly behind the SOI marker, where EXIF wants it.
func writeJPEG(w io.Writer, img image.Image, quality int, app1 []byte) error {
	head := []byte{0xff, 0xd8, 0xff, 0xe1} // SOI, APP1
	head = binary.BigEndian.AppendUint16(head, uint16(2+len(app1)))
	if _, err := w.Write(append(head, app1...)); err != nil {
		return fmt.Errorf("write exif: %w", err)
	}
	if err := jpeg.Encode(&withoutHead{w: w, skip: 2}, img, &jpeg.Options{Quality: quality}); err != nil {
		return fmt.Errorf("encode jpeg: %w", err)
	}
	return nil
}

// withoutHead drops the first skip bytes: the encoder's own SOI.
type withoutHead struct {
	w    io.Writer
	skip int
}

func (h *withoutHead) Write(p []byte) (int, error) {
	dropped := min(h.skip, len(p))
	h.skip -= dropped
	n, err := h.w.Write(p[dropped:])
	return dropped + n, err
}

// field is one entry of a TIFF image file directory.
type field struct {
	tag, kind uint16
	count     uint32
	value     []byte
}

// Field types of TIFF 6.0, section 2.
const (
	kindASCII     = 2
	kindShort     = 3
	kindLong      = 4
	kindRational  = 5
	kindUndefined = 7
)

// exif returns the payload of an APP1 segment with every field that an Exif JPEG must have (CIPA
// DC-008, 4.5, 4.6 and 4.7.2): a little-endian TIFF header, the primary directory, the Exif directory.
func (s shot) exif(orientation uint16, taken time.Time) []byte {
	const firstIFD = 8
	le := binary.LittleEndian
	text := func(tag uint16, s string) field {
		return field{tag, kindASCII, uint32(len(s) + 1), append([]byte(s), 0)}
	}
	short := func(tag uint16, v int) field {
		return field{tag, kindShort, 1, le.AppendUint16(nil, uint16(v))}
	}
	dpi72 := le.AppendUint32(le.AppendUint32(nil, 72), 1)
	primary := func(exifIFD uint32) []byte {
		return directory(firstIFD, []field{
			text(0x010f, "fieldgw"),   // Make
			text(0x0110, "plantroom"), // Model
			short(0x0112, int(orientation)),
			{0x011a, kindRational, 1, dpi72}, // XResolution
			{0x011b, kindRational, 1, dpi72}, // YResolution
			short(0x0128, 2),                 // ResolutionUnit: inch
			short(0x0213, 1),                 // YCbCrPositioning: centred
			{0x8769, kindLong, 1, le.AppendUint32(nil, exifIFD)},
		})
	}
	second := firstIFD + uint32(len(primary(0)))
	data := append([]byte("Exif\x00\x00II*\x00"), le.AppendUint32(nil, firstIFD)...)
	data = append(data, primary(second)...)
	return append(data, directory(second, []field{
		{0x9000, kindUndefined, 4, []byte("0232")},        // ExifVersion
		text(0x9003, taken.Format("2006:01:02 15:04:05")), // DateTimeOriginal
		text(0x9011, taken.Format("-07:00")),              // OffsetTimeOriginal
		{0x9101, kindUndefined, 4, []byte{1, 2, 3, 0}},    // ComponentsConfiguration: Y Cb Cr
		{0xa000, kindUndefined, 4, []byte("0100")},        // FlashpixVersion
		short(0xa001, 1), // ColorSpace: sRGB
		short(0xa002, s.width),
		short(0xa003, s.height),
	})...)
}

// directory encodes fields, sorted by tag, as a directory that starts at offset; values of more
// than four bytes follow it, each at an even offset.
func directory(offset uint32, fields []field) []byte {
	le := binary.LittleEndian
	out := le.AppendUint16(nil, uint16(len(fields)))
	var values []byte
	valuesAt := offset + 2 + 12*uint32(len(fields)) + 4
	for _, f := range fields {
		out = le.AppendUint16(out, f.tag)
		out = le.AppendUint16(out, f.kind)
		out = le.AppendUint32(out, f.count)
		if len(f.value) <= 4 {
			out = append(out, append(f.value, 0, 0, 0, 0)[:4]...)
			continue
		}
		out = le.AppendUint32(out, valuesAt+uint32(len(values)))
		values = append(values, f.value...)
		if len(values)%2 == 1 {
			values = append(values, 0)
		}
	}
	out = le.AppendUint32(out, 0) // no next directory
	return append(out, values...)
}
