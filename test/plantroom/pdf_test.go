package plantroom

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/smallstep/pkcs7"
)

var byteRangePattern = regexp.MustCompile(`/ByteRange \[0 (\d+) (\d+) (\d+)\]`)

var errNotWhole = errors.New("the signature does not cover the whole file")

// verify checks the one signature of a PDF the way a reader does: take the byte range from the file,
// see that it leaves out nothing but the value of /Contents, and verify the CMS structure over it.
func verify(file []byte) error {
	m := byteRangePattern.FindSubmatch(file)
	if m == nil {
		return errors.New("no byte range")
	}
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(string(m[i+1])); err != nil {
			return fmt.Errorf("parse byte range: %w", err)
		}
	}
	gap, after := n[0], n[1]
	if gap >= after || after > len(file) || after+n[2] != len(file) ||
		!bytes.HasSuffix(file[:gap], []byte("/Contents ")) || file[gap] != '<' || file[after-1] != '>' {
		return errNotWhole
	}
	cms, err := hex.DecodeString(string(file[gap+1 : after-1]))
	if err != nil {
		return fmt.Errorf("decode contents: %w", err)
	}
	var envelope asn1.RawValue
	padding, err := asn1.Unmarshal(cms, &envelope)
	if err != nil {
		return fmt.Errorf("read contents: %w", err)
	}
	if len(bytes.Trim(padding, "\x00")) > 0 {
		return errors.New("data behind the signature")
	}
	signature, err := pkcs7.Parse(envelope.FullBytes)
	if err != nil {
		return fmt.Errorf("parse signature: %w", err)
	}
	signature.Content = append(append([]byte(nil), file[:gap]...), file[after:]...)
	return signature.Verify()
}

// checkReport verifies the signature in Go and, where they are installed, in poppler and qpdf.
func checkReport(t *testing.T, path string, data []byte) {
	t.Helper()
	if n := len(data); n < 600<<10 || n > 640<<10 {
		t.Errorf("the report has %d bytes, want 600-640 KiB", n)
	}
	if err := verify(data); err != nil {
		t.Errorf("verify: %v", err)
	}
	if out, ran := tool(t, "poppler-utils", "pdfsig", path); ran {
		for _, want := range []string{"Signature is Valid.", "Total document signed", "SHA-256", "adbe.pkcs7.detached"} {
			if !strings.Contains(out, want) {
				t.Errorf("pdfsig does not say %q:\n%s", want, out)
			}
		}
	}
	if out, ran := tool(t, "qpdf", "qpdf", "--check", path); ran && strings.Contains(out, "WARNING") {
		t.Errorf("qpdf warns:\n%s", out)
	}
}

// Proves that the signature protects every part of the file: one changed bit in the header, a page,
// the photograph, the trailer or the signature itself, or one byte appended, and it no longer holds.
func TestSignedPDFDetectsChange(t *testing.T) {
	var b bytes.Buffer
	if err := SignedPDF(&b, fixtureSeed); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	if err := verify(file); err != nil {
		t.Fatalf("untouched: %v", err)
	}
	contents := bytes.Index(file, []byte("/Contents <")) + len("/Contents <")
	unused := bytes.Index(file[contents:], bytes.Repeat([]byte("0"), 100)) // signed value last, then padding
	places := map[string]int{
		"header":    5,
		"checklist": bytes.Index(file, []byte("(Checklist)")) + 1,
		"photo":     len(file) / 2,
		"signature": contents + unused - 20,
		"trailer":   bytes.LastIndex(file, []byte("startxref")),
		"last byte": len(file) - 1,
	}
	for name, at := range places {
		changed := bytes.Clone(file)
		changed[at] ^= 1
		if err := verify(changed); err == nil {
			t.Errorf("%s: a changed bit at %d was not noticed", name, at)
		}
	}
	if err := verify(append(bytes.Clone(file), '\n')); !errors.Is(err, errNotWhole) {
		t.Errorf("appended byte: %v", err)
	}
}

// Proves the promise about two reports of one seed: equal length, equal text, different signature.
func TestSignedPDFLength(t *testing.T) {
	for seed := range uint64(2) {
		var first, second bytes.Buffer
		if err := errors.Join(SignedPDF(&first, seed), SignedPDF(&second, seed)); err != nil {
			t.Fatal(err)
		}
		if n := first.Len(); n != second.Len() || n < 600<<10 || n > 640<<10 {
			t.Errorf("seed %d gave %d and %d bytes, want 600-640 KiB", seed, n, second.Len())
		}
		if bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("seed %d: both reports carry one signature", seed)
		}
		text := bytes.Index(first.Bytes(), []byte("/Type /XObject"))
		if !bytes.Equal(first.Bytes()[:text], second.Bytes()[:text]) {
			t.Errorf("seed %d: the texts differ", seed)
		}
	}
}
