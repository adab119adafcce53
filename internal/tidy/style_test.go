package tidy

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFile = 450 // lines of a non-test file
	maxFunc = 80  // lines of a function in one; a table does not count
)

// A ban names things of other packages that must not be used in some files, and what to use instead. "path.*" bans
// the import itself. Each name is the name of its rule as well.
type ban struct {
	names   []string
	where   func(*source) bool
	instead string
}

var bans = []ban{
	{[]string{"time.Sleep"}, func(s *source) bool { return s.test() || s.under("test") },
		"wait for the event, or put the test into a testing/synctest bubble"},
	{[]string{"os.Rename", "os.Create", "os.CreateTemp", "os.WriteFile", "os.Remove", "os.RemoveAll", "os.Mkdir", "os.MkdirAll",
		"os.MkdirTemp", "os.Link", "os.Symlink", "os.Truncate"}, touchesFiles, durably},
	{[]string{"fmt.Print", "fmt.Printf", "fmt.Println", "os.Stdout", "os.Stderr"}, inInternal,
		"write to the io.Writer that was passed in"},
	{[]string{"log.*", "log/slog.Default", "log/slog.SetDefault", "log/slog.Debug", "log/slog.Info", "log/slog.Warn", "log/slog.Error",
		"log/slog.Log", "log/slog.LogAttrs"}, inInternal, "use the injected *slog.Logger"},
	{[]string{"context.Background"}, func(s *source) bool { return s.product() && !s.under("cmd") },
		"take the caller's context; context.WithoutCancel if the work must outlive it"},
	{[]string{"testing.Short"}, func(*source) bool { return true },
		"bound the test by a count; make test runs everything"},
	{[]string{"time.Now", "time.Since", "time.Until"},
		func(s *source) bool { return s.product() && s.under(pure...) },
		"take the time as an argument: this package is pure"},
	{[]string{"os/exec.*"}, inInternal, "do without a child process, or state the exception"},
}

// An exception lifts one rule for one file, or for everything below a directory that is written with a final slash.
type exception struct{ rule, path, reason string }

// exceptions must each be needed: one that excuses nothing fails the test.
var exceptions = []exception{
	{"panic", "internal/config/decode.go", "a config field of a kind without decoder: the defaults test meets it"},
	{"panic", "internal/uplink/uplinktest/mischief.go", "http.ErrAbortHandler is how a handler cuts the connection"},
	{"panic", "internal/server/route.go", "http.ErrAbortHandler is how a handler cuts an answer that has begun"},
	{"panic", "internal/store/guard.go", "misuse of a transaction, and the re-raise of a caller's own panic"},
	{"os.OpenFile", "internal/store/lock.go", "bbolt and flock need a descriptor of the operating system"},
}

const durably = "go through internal/durable, which syncs files and directories and injects faults"

func touchesFiles(s *source) bool { return s.product() && !s.under("internal/durable", "cmd") }

func inInternal(s *source) bool { return !s.test() && s.under("internal") }

// unfinished matches the words that announce work left undone; written so that it does not match itself.
var unfinished = regexp.MustCompile(`\b(T[O]DO|F[I]XME|X[X]X)\b|not[ ]implemented`)

// licence matches a comment that is a licence header, which documents no package.
var licence = regexp.MustCompile(`^(Copyright|SPDX-|Licensed|©)`)

type finding struct {
	path string
	line int
	rule string
	text string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s [%s]", f.path, f.line, f.text, f.rule)
}

// checkFile applies every rule that one file can break by itself.
func checkFile(s *source) []finding {
	var found []finding
	report := func(line int, rule, format string, args ...any) {
		found = append(found, finding{s.path, line, rule, fmt.Sprintf(format, args...)})
	}
	for i, line := range bytes.Split(s.text, []byte("\n")) {
		if word := unfinished.Find(line); word != nil {
			report(i+1, "unfinished", "%q: finish it, or describe the limit as a fact", word)
		}
	}
	if n := bytes.Count(s.text, []byte("\n")); !s.test() && n > maxFile {
		report(1, "size", "%d lines: split it by subject, at most %d", n, maxFile)
	}
	for _, b := range bans {
		for _, spec := range s.syntax.Imports {
			if imported := unquote(spec.Path); slices.Contains(b.names, imported+".*") && b.where(s) {
				report(s.line(spec.Pos()), imported+".*", "import of %s: %s", imported, b.instead)
			}
		}
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		checkNode(s, n, report)
		return true
	})
	if !s.test() && !s.main() && !s.under("test") {
		for _, name := range undocumented(s.syntax) {
			report(s.line(name.Pos()), "doc", "exported %s has no doc comment: state its contract", name.Name)
		}
	}
	return found
}

// unquote is the text of a string literal, good enough for import paths and message prefixes.
func unquote(l *ast.BasicLit) string { return strings.Trim(l.Value, "`\"") }

func checkNode(s *source, n ast.Node, report func(line int, rule, format string, args ...any)) {
	switch n := n.(type) {
	case *ast.Ident:
		if n.Name == "NoSync" || n.Name == "NoFreelistSync" {
			report(s.line(n.Pos()), "nosync", "%s: bbolt syncs its data and its freelist, always", n.Name)
		}
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if !ok || s.imports[x.Name] == "" {
			return
		}
		for _, b := range bans {
			if name := s.imports[x.Name] + "." + n.Sel.Name; slices.Contains(b.names, name) && b.where(s) {
				report(s.line(n.Pos()), name, "%s.%s: %s", x.Name, n.Sel.Name, b.instead)
			}
		}
	case *ast.FuncDecl:
		if n.Body != nil {
			checkLength(s, n, n.Body, report)
		}
	case *ast.FuncLit:
		checkLength(s, n, n.Body, report)
	case *ast.CallExpr:
		checkCall(s, n, report)
	case *ast.BinaryExpr:
		if s.product() && (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorText(n.X) || isErrorText(n.Y)) {
			report(s.line(n.Pos()), "errtext", "error text compared: use errors.Is or errors.As")
		}
	}
}

func checkCall(s *source, call *ast.CallExpr, report func(line int, rule, format string, args ...any)) {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		if fun.Name == "panic" && s.product() {
			report(s.line(call.Pos()), "panic", "panic: return an error")
		}
		if (fun.Name == "print" || fun.Name == "println") && s.product() {
			report(s.line(call.Pos()), fun.Name, "%s: write to the io.Writer that was passed in", fun.Name)
		}
	case *ast.SelectorExpr:
		x, ok := fun.X.(*ast.Ident)
		if !ok {
			return
		}
		matching := []string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index"}
		if s.product() && s.imports[x.Name] == "strings" && slices.Contains(matching, fun.Sel.Name) && slices.ContainsFunc(call.Args, isErrorText) {
			report(s.line(call.Pos()), "errtext", "error text matched: use errors.Is or errors.As")
		}
		if s.imports[x.Name] == "os" && fun.Sel.Name == "OpenFile" && touchesFiles(s) && len(call.Args) == 3 && !readsOnly(call.Args[1]) {
			report(s.line(call.Pos()), "os.OpenFile", "os.OpenFile for writing: %s", durably)
		}
		skips := []string{"Skip", "Skipf", "SkipNow"}
		if s.imports["testing"] != "" && s.imports[x.Name] == "" && slices.Contains(skips, fun.Sel.Name) && !saysNotRun(call.Args) {
			report(s.line(call.Pos()), "skip", `%s: say what is missing, in a message that begins with "not run: "`, fun.Sel.Name)
		}
	}
}

// readsOnly reports whether the flags of an open name O_RDONLY, and nothing that writes or creates.
func readsOnly(flags ast.Expr) bool {
	reads, writes := false, false
	ast.Inspect(flags, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			reads = reads || name.Name == "O_RDONLY"
			writes = writes || slices.Contains([]string{"O_WRONLY", "O_RDWR", "O_CREATE", "O_CREAT", "O_TRUNC", "O_APPEND"}, name.Name)
		}
		return true
	})
	return reads && !writes
}

// isErrorText reports whether e is a call of an Error method without arguments.
func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	return ok && fun.Sel.Name == "Error"
}

// saysNotRun reports whether a skip's message begins with the words that the test summary collects.
func saysNotRun(args []ast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	first := args[0]
	for {
		sum, ok := first.(*ast.BinaryExpr)
		if !ok {
			break
		}
		first = sum.X
	}
	text, ok := first.(*ast.BasicLit)
	return ok && strings.HasPrefix(unquote(text), "not run: ")
}

func checkLength(s *source, fn ast.Node, body *ast.BlockStmt, report func(line int, rule, format string, args ...any)) {
	lines := s.lines(fn)
	if s.test() || lines <= maxFunc {
		return
	}
	if table := tableLines(s, body); table*2 > lines && lines-table <= maxFunc {
		return
	}
	report(s.line(fn.Pos()), "size", "function of %d lines: split it, at most %d", lines, maxFunc)
}

// tableLines is the length of body's longest composite literal. Functions inside the literal are code, not table.
func tableLines(s *source, body *ast.BlockStmt) int {
	longest := 0
	ast.Inspect(body, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		lines := s.lines(literal)
		ast.Inspect(literal, func(n ast.Node) bool {
			fn, ok := n.(*ast.FuncLit)
			if ok {
				lines -= s.lines(fn)
			}
			return !ok
		})
		longest = max(longest, lines)
		return true
	})
	return longest
}

// undocumented lists the exported names of f without a comment. One comment above a parenthesised group of constants
// or variables documents them all; methods count where their type is exported.
func undocumented(f *ast.File) []*ast.Ident {
	var names []*ast.Ident
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Doc == nil && decl.Name.IsExported() && (decl.Recv == nil || exportedReceiver(decl.Recv)) {
				names = append(names, decl.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() && spec.Doc == nil && (decl.Doc == nil || decl.Lparen.IsValid()) {
						names = append(names, spec.Name)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() && spec.Doc == nil && spec.Comment == nil && decl.Doc == nil {
							names = append(names, name)
						}
					}
				}
			}
		}
	}
	return names
}

func exportedReceiver(recv *ast.FieldList) bool {
	of := recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.Ident:
			return t.IsExported()
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		default:
			return false
		}
	}
}

// checkPackages demands one doc comment for each package, in one file. A package of tests only has it in a test.
func checkPackages(all []*source) []finding {
	files := map[string][]*source{}
	for _, s := range all {
		files[path.Dir(s.path)] = append(files[path.Dir(s.path)], s)
	}
	var found []finding
	for _, of := range files {
		if product := slices.DeleteFunc(slices.Clone(of), (*source).test); len(product) > 0 {
			of = product
		}
		var docs []*source
		for _, s := range of {
			doc := s.syntax.Doc.Text()
			if doc == "" || licence.MatchString(doc) {
				continue
			}
			docs = append(docs, s)
			if want := "Package " + s.syntax.Name.Name + " "; !s.test() && !s.main() && !strings.HasPrefix(doc, want) {
				found = append(found, finding{s.path, s.line(s.syntax.Package), "package", fmt.Sprintf("package comment: begin with %q", want)})
			}
		}
		switch {
		case len(docs) == 0:
			found = append(found, finding{of[0].path, 1, "package",
				"the package has no doc comment: say what it owns, what it promises, what to read first"})
		case len(docs) > 1:
			for _, s := range docs[1:] {
				found = append(found, finding{s.path, s.line(s.syntax.Package), "package",
					"second package comment: keep the one in " + docs[0].path})
			}
		}
	}
	return found
}

// excuse takes out the findings that have an exception and adds one for each exception that excused nothing.
func excuse(found []finding, excepted []exception) []finding {
	used := make([]bool, len(excepted))
	rest := slices.DeleteFunc(found, func(f finding) bool {
		i := slices.IndexFunc(excepted, func(e exception) bool {
			return e.rule == f.rule && (e.path == f.path || strings.HasSuffix(e.path, "/") && strings.HasPrefix(f.path, e.path))
		})
		if i >= 0 {
			used[i] = true
		}
		return i >= 0
	})
	for i, e := range excepted {
		if !used[i] {
			rest = append(rest, finding{e.path, 0, e.rule, "exception that nothing needs: remove it from the list"})
		}
	}
	return rest
}

// Every Go file of the module keeps the house rules.
func TestStyle(t *testing.T) {
	all, err := tree()
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	found := checkPackages(all)
	for _, s := range all {
		found = append(found, checkFile(s)...)
	}
	found = excuse(found, exceptions)
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.path, b.path), a.line-b.line)
	})
	for _, f := range found {
		t.Error(f)
	}
}
