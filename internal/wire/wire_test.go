package wire

import (
	"bytes"
	"encoding/base64"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// declared returns the text of every constant of type Code in this package.
func declared(t *testing.T) map[Code]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[Code]bool{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			text, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(value.Names[0].Name, "Code") || found[Code(text)] {
				t.Errorf("constant %s: not a code of its own", value.Names[0].Name)
			}
			found[Code(text)] = true
		}
	}
	return found
}

// Constants, their statuses and the table in docs/protocol.md name the same codes with the same statuses.
func TestCodesAreDocumented(t *testing.T) {
	constants := declared(t)
	for _, c := range Codes() {
		if !constants[c] {
			t.Errorf("status for %s, which is no constant", c)
		}
		if s := c.Status(); s < 400 || s > 599 {
			t.Errorf("%s has status %d", c, s)
		}
		delete(constants, c)
	}
	for c := range constants {
		t.Errorf("%s has no status", c)
	}
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[Code]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d{3}) \\| `(\\w+)` \\|").FindAllSubmatch(page, -1) {
		status, err := strconv.Atoi(string(row[1]))
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := documented[Code(row[2])]; twice {
			t.Errorf("docs/protocol.md has %s twice", row[2])
		}
		documented[Code(row[2])] = status
	}
	for _, c := range Codes() {
		if documented[c] != c.Status() {
			t.Errorf("%s is %d in the code and %d in docs/protocol.md", c, c.Status(), documented[c])
		}
		delete(documented, c)
	}
	for c := range documented {
		t.Errorf("docs/protocol.md has %s, which is no code", c)
	}
}

// A token's text reads back as it was, names nobody but itself, and is not shown by formatting.
func TestToken(t *testing.T) {
	token := Token{Account: "acme", Device: "tablet-7"}
	copy(token.Secret[:], bytes.Repeat([]byte{0xfb}, TokenSecretBytes))
	text := token.Text()
	got, err := ParseToken(text)
	if err != nil || got != token || !strings.HasPrefix(text, "fgw1.acme.tablet-7.") {
		t.Fatalf("%v, %v", got, err)
	}
	secret := base64.RawURLEncoding.EncodeToString(token.Secret[:])
	if strings.Contains(token.String(), secret[:8]) {
		t.Errorf("formatted: %s", token)
	}
	for _, bad := range []string{
		"", "fgw1", text + ".x", "fgw2" + text[4:], strings.ToUpper(text), text + "\n", text[:30] + "\n" + text[30:], text[:len(text)-1], text + "A",
		strings.Replace(text, "acme", "", 1), strings.Replace(text, "acme", "a/b", 1), strings.Replace(text, "acme", "..", 1),
		strings.Replace(text, "acme", strings.Repeat("a", 64), 1), strings.Replace(text, secret, secret+"=", 1),
	} {
		_, err := ParseToken(bad)
		if !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", bad, err)
		} else if len(bad) > 8 && strings.Contains(err.Error(), bad[8:]) {
			t.Errorf("the error tells the text: %v", err)
		}
	}
}

// Whatever ParseToken takes, it gives back.
func FuzzParseToken(f *testing.F) {
	f.Add(Token{Account: "a", Device: "d"}.Text())
	f.Add("fgw1.a.d.")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := ParseToken(text); err == nil && token.Text() != text {
			t.Fatalf("%q became %q", text, token.Text())
		}
	})
}

// Each bound of a reserve message is enforced by itself.
func TestReserveValidate(t *testing.T) {
	good := Reserve{SHA256: strings.Repeat("a", 64), Role: RoleOriginal, MediaType: "image/jpeg", Filename: "a.jpg"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 2*MaxParentID+1)
	for name, spoil := range map[string]func(*Reserve){
		"negative":       func(r *Reserve) { r.Length = -1 },
		"too long":       func(r *Reserve) { r.Length = MaxLength + 1 },
		"digest":         func(r *Reserve) { r.SHA256 = r.SHA256[1:] },
		"digest case":    func(r *Reserve) { r.SHA256 = strings.ToUpper(r.SHA256) },
		"role":           func(r *Reserve) { r.Role = "" },
		"of original":    func(r *Reserve) { r.Of = "x" },
		"preview of":     func(r *Reserve) { r.Role = RolePreview },
		"media type":     func(r *Reserve) { r.MediaType = "" },
		"no filename":    func(r *Reserve) { r.Filename = "" },
		"filename":       func(r *Reserve) { r.Filename = long },
		"filename utf-8": func(r *Reserve) { r.Filename = "\xff" },
		"filename raw":   func(r *Reserve) { r.FilenameRaw = []byte(long) },
		"media ID":       func(r *Reserve) { r.ProposedMediaID = long },
		"supersedes":     func(r *Reserve) { r.Supersedes = long },
		"parent":         func(r *Reserve) { r.Parent.LocalID = long },
		"parent server":  func(r *Reserve) { r.Parent.ServerID = long },
		"parent raw":     func(r *Reserve) { r.Parent.LocalIDRaw = []byte("x") },
	} {
		r := good
		spoil(&r)
		if err := r.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A certificate names account and device by exactly one URI.
func TestParseIdentity(t *testing.T) {
	for _, c := range []struct {
		uris            []string
		account, device string
	}{
		{[]string{"fieldgw:acme:tablet-7"}, "acme", "tablet-7"}, {[]string{"https://x", "fieldgw:a:b"}, "a", "b"}, {nil, "", ""},
		{[]string{"fieldgw:a:b", "fieldgw:a:c"}, "", ""}, {[]string{"fieldgw:a"}, "", ""}, {[]string{"fieldgw:a:b:c"}, "", ""},
		{[]string{"fieldgw::b"}, "", ""}, {[]string{"fieldgw:A:b"}, "", ""}, {[]string{"fieldgw:unassigned:b"}, "", ""},
		{[]string{"fieldgw://a:b"}, "", ""}, {[]string{"xfieldgw:a:b"}, "", ""},
	} {
		account, device, err := ParseIdentity(c.uris)
		if account != c.account || device != c.device || (err == nil) != (c.account != "") || err != nil && !errors.Is(err, ErrIdentity) {
			t.Errorf("%q: %q, %q, %v", c.uris, account, device, err)
		}
	}
}

// Whatever a certificate holds, what is read from it are names that give the same URI.
func FuzzParseIdentity(f *testing.F) {
	f.Add("fieldgw:acme:tablet-7")
	f.Fuzz(func(t *testing.T, uri string) {
		account, device, err := ParseIdentity([]string{uri})
		if err == nil && (IdentityURI(account, device) != uri || !ValidName(account) || !ValidName(device)) {
			t.Errorf("%q is read as %q, %q", uri, account, device)
		}
	})
}
