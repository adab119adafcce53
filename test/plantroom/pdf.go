package plantroom

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Object numbers of the report. Each has one purpose, so the table needs no allocation.
const (
	objCatalog = 1 + iota
	objPages
	objFont
	objInfo
	objImage
	objSignature
	objSignatureField
	objAppearance
	objFirstPage // a page and its content stream, for each of pageCount
)

const (
	pageCount   = 3
	objectCount = objFirstPage + 2*pageCount - 1
)

// SignedPDF writes an inspection report of three pages and 600–640 KiB (PDF 1.7, ISO 32000-1) with
// one embedded photograph and one signature field. The field holds a detached CMS signature
// (adbe.pkcs7.detached, SHA-256) whose byte range is the whole file but the signature itself, made
// with a key and a self-signed certificate that exist only for this call. One seed always gives
// the same length and the same text. The report is put together in memory (below 8 MiB). It
// returns errors of w and of the signing library.
func SignedPDF(w io.Writer, seed uint64) error {
	doc, err := newReport(seed)
	if err != nil {
		return fmt.Errorf("make report: %w", err)
	}
	if err := doc.sign(); err != nil {
		return fmt.Errorf("sign report: %w", err)
	}
	if _, err := w.Write(doc.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// report is a PDF file under construction and where in it things are.
type report struct {
	bytes.Buffer
	offsets           [objectCount + 1]int
	byteRange         int // offset of the placeholder of /ByteRange
	contents, gapSize int // offset and length of the value of /Contents, both brackets included
}

// newReport builds the whole file with placeholders for /ByteRange and /Contents.
func newReport(seed uint64) (*report, error) {
	r := newRandom(seed)
	doc := &report{}
	doc.WriteString("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n") // the second line marks the file as binary, 7.5.2
	doc.object(objCatalog, "<< /Type /Catalog /Pages %d 0 R /AcroForm << /Fields [%d 0 R] /SigFlags 3 >> >>",
		objPages, objSignatureField)
	var kids []string
	for i := range pageCount {
		kids = append(kids, fmt.Sprintf("%d 0 R", objFirstPage+2*i))
	}
	doc.object(objPages, "<< /Type /Pages /Count %d /Kids [%s] /MediaBox [0 0 595 842] >>", pageCount, strings.Join(kids, " "))
	doc.object(objFont, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
	doc.object(objInfo, "<< /Title (Plant room inspection report) /Producer (fieldgw plantroom) /CreationDate (D:20260302160000Z) >>")
	for i, content := range []string{summaryPage(r), checklistPage(r), photoPage()} {
		doc.page(i, content)
	}
	var photo bytes.Buffer
	if err := reportShot.take(&photo, seed&^1); err != nil { // even: the page shows it as it is stored
		return nil, err
	}
	doc.stream(objImage, fmt.Sprintf("/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode",
		reportShot.width, reportShot.height), photo.Bytes())
	doc.stream(objAppearance, fmt.Sprintf("/Type /XObject /Subtype /Form /BBox [0 0 240 48] /Resources << /Font << /F1 %d 0 R >> >>", objFont),
		[]byte("0.5 w 1 1 238 46 re S BT /F1 10 Tf 8 28 Td (Digitally signed) Tj 0 -16 Td (Plant room inspection) Tj ET"))
	doc.object(objSignatureField, "<< /Type /Annot /Subtype /Widget /FT /Sig /T (Inspector) /F 132 /Rect [60 60 300 108] /P %d 0 R /V %d 0 R /AP << /N %d 0 R >> >>",
		objFirstPage+2*(pageCount-1), objSignature, objAppearance)
	doc.signature()
	doc.trailer(seed)
	return doc, nil
}

// object appends indirect object n and records its offset.
func (doc *report) object(n int, format string, args ...any) {
	doc.offsets[n] = doc.Len()
	fmt.Fprintf(doc, "%d 0 obj\n"+format+"\nendobj\n", append([]any{n}, args...)...)
}

func (doc *report) stream(n int, dict string, data []byte) {
	doc.object(n, "<< %s /Length %d >>\nstream\n%s\nendstream", dict, len(data), data)
}

// page appends page i, counted from 0, with its content. Only the last one has the image and the signature.
func (doc *report) page(i int, content string) {
	n, last := objFirstPage+2*i, ""
	resources := fmt.Sprintf("/Font << /F1 %d 0 R >>", objFont)
	if i == pageCount-1 {
		resources += fmt.Sprintf(" /XObject << /Im1 %d 0 R >>", objImage)
		last = fmt.Sprintf(" /Annots [%d 0 R]", objSignatureField)
	}
	doc.object(n, "<< /Type /Page /Parent %d 0 R /Resources << %s >> /Contents %d 0 R%s >>", objPages, resources, n+1, last)
	doc.stream(n+1, "", []byte(content))
}

// trailer appends the cross-reference table, whose entries are 20 bytes each (7.5.4), and the trailer.
func (doc *report) trailer(seed uint64) {
	start := doc.Len()
	fmt.Fprintf(doc, "xref\n0 %d\n0000000000 65535 f \n", objectCount+1)
	for _, offset := range doc.offsets[1:] {
		fmt.Fprintf(doc, "%010d 00000 n \n", offset)
	}
	id := fmt.Sprintf("<%016x%016x>", mix(seed, 5), mix(seed, 6))
	fmt.Fprintf(doc, "trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R /ID [%s %s] >>\nstartxref\n%d\n%%%%EOF\n",
		objectCount+1, objCatalog, objInfo, id, id, start)
}

// text is a content stream: lines of Helvetica from a point downwards, each as wide as it is.
func text(x, y, size, leading int, lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `(`, `\(`, `)`, `\)`)
	var b strings.Builder
	fmt.Fprintf(&b, "BT /F1 %d Tf %d TL %d %d Td\n", size, leading, x, y)
	for _, line := range lines {
		fmt.Fprintf(&b, "(%s) Tj T*\n", escape.Replace(line))
	}
	b.WriteString("ET\n")
	return b.String()
}

func summaryPage(r *random) string {
	return text(60, 770, 20, 24, "Plant room inspection report") +
		text(60, 730, 11, 16,
			fmt.Sprintf("Site %d, plant room %d, inspection number %06d", r.between(100, 999), r.between(1, 9), r.between(0, 999_999)),
			"Date of inspection: 2 March 2026",
			"",
			"Scope: heating and domestic hot water plant, visual inspection with readings",
			"(no pressure test, no opening of equipment). Photographs are delivered with this report.",
			"",
			fmt.Sprintf("Flow temperature %d C, return temperature %d C", r.between(55, 80), r.between(35, 54)),
			fmt.Sprintf("System pressure %d.%d bar, expansion vessel %d.%d bar", r.between(1, 2), r.between(0, 9), 1, r.between(0, 9)),
			fmt.Sprintf("Room temperature %d C, relative humidity %d %%", r.between(16, 29), r.between(30, 70)),
			"",
			"The detailed checklist is on page 2, the overview photograph and the signature on page 3.")
}

func checklistPage(r *random) string {
	parts := []string{"Boiler", "Burner", "Circulation pump", "Expansion vessel", "Safety valve", "Strainer", "Heat meter", "Mixing valve"}
	checks := []string{"leakage", "corrosion", "insulation", "labelling", "fixing"}
	findings := []string{"in order", "in order", "in order", "in order", "minor finding, see photograph", "to be repaired"}
	var lines []string
	for _, part := range parts {
		for _, check := range checks {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", part, check, findings[r.between(0, len(findings)-1)]))
		}
	}
	return text(60, 770, 14, 18, "Checklist") + text(60, 740, 10, 16, lines...)
}

func photoPage() string {
	return text(60, 770, 14, 18, "Overview photograph") + "q 475 0 0 356 60 390 cm /Im1 Do Q\n" +
		text(60, 130, 10, 14, "Signed electronically by the inspector:")
}
