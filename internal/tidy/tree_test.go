package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	root   = "../.." // of the module, seen from this package
	module = "github.com/fieldgw/fieldgw"
)

// source is one parsed Go file of the module.
type source struct {
	path    string // from the root, with slashes
	text    []byte
	fset    *token.FileSet
	syntax  *ast.File
	imports map[string]string // name in this file → import path
}

func (s *source) test() bool    { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) product() bool { return !s.test() && !s.under("test") }
func (s *source) main() bool    { return s.syntax.Name.Name == "main" }

func (s *source) under(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(s.path, d+"/") })
}

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s *source) lines(n ast.Node) int { return s.line(n.End()) - s.line(n.Pos()) + 1 }

func parse(name string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{path: name, text: text, fset: fset, syntax: syntax, imports: map[string]string{}}
	for _, spec := range syntax.Imports {
		local := path.Base(unquote(spec.Path))
		if spec.Name != nil {
			local = spec.Name.Name
		}
		s.imports[local] = unquote(spec.Path)
	}
	return s, nil
}

// tree is every Go file of the module, read once. Hidden directories, test data and modules of their own are left out.
var tree = sync.OnceValues(func() ([]*source, error) {
	var all []*source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "build" || rel == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		if err == nil {
			all = append(all, s)
		}
		return err
	})
	return all, err
})
