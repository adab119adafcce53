package watch

import (
	"path"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Names alone decide what is temporary, what is not this watch's business and what may be taken; patterns see raw bytes.
func TestJudgeNames(t *testing.T) {
	all := nameRules{}
	jpegs := nameRules{include: []string{"*.jpg", "*.JPG"}, exclude: []string{"thumb_*"}}
	for _, tc := range []struct {
		rules nameRules
		name  string
		want  naming
	}{
		{all, "DSC_0001.JPG", nameTaken},
		{all, "part", nameTaken},
		{all, "a.part.jpg", nameTaken},
		{all, "tilde~.jpg", nameTaken},
		{all, "new\nline.jpg", nameTaken},
		{all, "\xff\xfe.jpg", nameTaken},
		{all, strings.Repeat("x", 255), nameTaken},
		{all, "CON", nameTaken},
		{all, ".hidden", nameTemporary},
		{all, ".report.pdf.Ab12Cd", nameTemporary}, // rsync
		{all, "report.pdf~", nameTemporary},
		{all, "~", nameTemporary},
		{all, "a.part", nameTemporary},
		{all, "a.PART", nameTemporary},
		{all, "a.tmp", nameTemporary},
		{all, "Video.mp4.crdownload", nameTemporary},
		{all, "a.partial", nameTemporary},
		{all, "a.jpg.filepart", nameTemporary}, // WinSCP
		{all, "\xff.part", nameTemporary},
		{all, "a.iso.download", nameTemporary},     // Safari
		{all, "a.iso.OPDOWNLOAD", nameTemporary},   // Opera
		{all, "report.docx.swp", nameTemporary},    // vim
		{all, "~$report.docx", nameTemporary},      // Microsoft Office
		{all, ".~lock.report.odt#", nameTemporary}, // LibreOffice
		{all, ".~tmp~", nameTemporary},             // rsync --delay-updates
		{all, "a$.docx", nameTaken},
		{all, "a.download.jpg", nameTaken},
		{all, "a.upload", nameTaken},
		{nameRules{temporary: []string{"*.upload", "part-?"}}, "a.upload", nameTemporary},
		{nameRules{temporary: []string{"*.upload", "part-?"}}, "part-7", nameTemporary},
		{nameRules{temporary: []string{"*.upload", "part-?"}}, "part-77", nameTaken},
		{nameRules{temporary: []string{"*.upload"}}, "a.tmp", nameTemporary},
		{nameRules{temporary: []string{"*.upload"}, exclude: []string{"*.upload"}}, "a.upload", nameSkipped},
		{nameRules{temporary: []string{"*.upload"}, include: []string{"*.upload"}}, "a.upload", nameTemporary},
		{all, ".fieldgw-release-01a22e73-ee3a-7b06-bf96-58df924c8317", nameSkipped},
		{all, ".fieldgw-release-1", nameTemporary},
		{all, ".fieldgw-photo.jpg", nameTemporary},
		{all, ".fieldgw", nameTemporary},
		{jpegs, "a.jpg", nameTaken},
		{jpegs, "a.pdf", nameSkipped},
		{jpegs, "thumb_a.jpg", nameSkipped},
		{jpegs, ".a.jpg", nameTemporary},
		{nameRules{include: []string{"*.part"}}, "a.part", nameTemporary},
		{nameRules{exclude: []string{"*.part"}}, "a.part", nameSkipped},
	} {
		if got := tc.rules.judge(tc.name); got != tc.want {
			t.Errorf("%q with %v: got %d, want %d", tc.name, tc.rules, got, tc.want)
		}
	}
}

// The parent is the first directory below the root, at any depth; relative paths are cut without changing a byte.
func TestParentAndRelativePaths(t *testing.T) {
	for _, tc := range []struct{ root, path, rel, parent string }{
		{"/cap", "/cap/photo.jpg", "photo.jpg", ""},
		{"/cap", "/cap/inspection-7/photo.jpg", "inspection-7/photo.jpg", "inspection-7"},
		{"/cap", "/cap/inspection-7/cam/photo.jpg", "inspection-7/cam/photo.jpg", "inspection-7"},
		{"/cap", "/cap/\xff\n/a", "\xff\n/a", "\xff\n"},
		{"/", "/a/b", "a/b", "a"},
		{"/cap", "/cap", "", ""},
	} {
		rel, ok := below(tc.root, tc.path)
		if !ok || rel != tc.rel || parentOf(rel) != tc.parent {
			t.Errorf("%q below %q: %q, %v, parent %q", tc.path, tc.root, rel, ok, parentOf(rel))
		}
		if rel != "" && join(tc.root, rel) != tc.path {
			t.Errorf("join(%q, %q) is not %q", tc.root, rel, tc.path)
		}
	}
	for _, outside := range []string{"/", "/ca", "/capture/a", "/other"} {
		if rel, ok := below("/cap", outside); ok {
			t.Errorf("%q is below /cap as %q", outside, rel)
		}
	}
}

// A sidecar goes with its file through a watch's patterns, and what is called so is one only where a watch has sidecars.
func TestSidecarNames(t *testing.T) {
	r := nameRules{include: []string{"*.jpg"}, exclude: []string{"x*"}, sidecars: true}
	for name, want := range map[string]naming{
		"a.jpg": nameTaken, "a.jpg.json": nameTaken, "manifest.json": nameTaken, "a.json": nameSkipped, "x.jpg.json": nameSkipped,
		"a.jpg.json.part": nameSkipped, ".a.jpg.json": nameTemporary, ".fieldgw-release-0197f3a2-0000-7000-8000-000000000001.sidecar": nameSkipped,
	} {
		if got := r.judge(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
	if !r.sidecar("a.jpg.json") || !r.sidecar("MANIFEST.JSON") || r.sidecar("a.jpg") || (nameRules{}).sidecar("a.jpg.json") {
		t.Error("which names are sidecars")
	}
	if plain := (nameRules{}); plain.judge("a.jpg.json") != nameTaken {
		t.Error("elsewhere it is a file like any other")
	}
}

// No name makes the rules fail; exclusion always wins; what comes out of a path can be put together again, byte by byte.
func FuzzNames(f *testing.F) {
	for _, seed := range [][2]string{{"DSC_1.JPG", "*.JPG"}, {".x.part", "?"}, {"a/b/\xff\n", "[a-"}, {"\x00", "\\"}, {"", ""}, {"~", "~"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, pattern string) {
		rules := nameRules{exclude: []string{pattern}}
		if rules.check() == nil {
			excluded, err := path.Match(pattern, name)
			if err != nil {
				t.Fatalf("check passed %q, Match says %v", pattern, err)
			}
			if excluded && rules.judge(name) != nameSkipped {
				t.Fatalf("%q is excluded by %q and judged %d", name, pattern, rules.judge(name))
			}
			if own := (nameRules{temporary: []string{pattern}}); own.judge(name) != nameSkipped &&
				(own.judge(name) == nameTemporary) != (excluded || temporary(name)) {
				t.Fatalf("%q with the temporary pattern %q is judged %d", name, pattern, own.judge(name))
			}
		}
		if all := (nameRules{}); all.judge(name) == nameTaken && (hidden(name) || strings.HasSuffix(name, "~")) {
			t.Fatalf("%q may be taken", name)
		}
		if name == "" || strings.HasPrefix(name, "/") {
			return
		}
		for _, root := range []string{"/", "/cap", "/cap/\xff"} {
			rel, ok := below(root, join(root, name))
			if !ok || rel != name {
				t.Fatalf("%q below %q came back as %q", name, root, rel)
			}
		}
		if parent := parentOf(name); parent != "" && !strings.HasPrefix(name, parent+"/") || strings.Contains(parent, "/") {
			t.Fatalf("parent of %q is %q", name, parent)
		}
		if attachment.NameOf(name).Exact() != name {
			t.Fatalf("%q lost bytes", name)
		}
		if k := (key{name, "w"}); !strings.Contains(name, "\x00") && decodeCursor(encodeCursor(k)) != k {
			t.Fatalf("cursor of %q", name)
		}
	})
}
