package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	maxFileSize = 64 << 10 // bytes of one file; the parser compares each key with all keys beside it
	maxDropIns  = 256      // drop-in files over all directories
)

// Sources says which files make a configuration.
type Sources struct {
	Main    string   // path of the main file
	DropIns []string // drop-in directories, the strongest first; missing ones are fine

	// AllowMissing makes a missing main file an empty one, for the daemon, which then runs "not configured".
	// Drop-ins are read all the same.
	AllowMissing bool
}

// DefaultSources returns the files of a gateway whose main file is path. The strongest drop-in directory is conf.d
// beside it. The directories that packages and device management fill, /run/fieldgw-conf.d and
// /usr/lib/fieldgw/conf.d, belong to the installed gateway and are searched only when path lies in /etc/fieldgw.
// (The one in /run is not below /run/fieldgw, which systemd removes whenever the service stops.)
func DefaultSources(path string) Sources {
	dirs := []string{filepath.Join(filepath.Dir(path), "conf.d")}
	if filepath.Dir(path) == filepath.Dir(DefaultPath) {
		dirs = append(dirs, "/run/fieldgw-conf.d", "/usr/lib/fieldgw/conf.d")
	}
	return Sources{Main: path, DropIns: dirs}
}

// Load reads the configuration whose main file is path, with the drop-ins of [DefaultSources]. env answers for the
// environment as in [Default]. The errors are those of [Sources.Load].
func Load(path string, env func(string) string) (*Config, error) {
	return DefaultSources(path).Load(env)
}

// Load reads the main file and then the drop-ins, in the order of their names over all directories; a later value
// replaces an earlier one, tables merge key by key, arrays are replaced. As with systemd (systemd.unit(5), and
// systemd's standard configuration search), of two drop-ins with one name only the stronger directory's is read, and
// a link to /dev/null switches a name off. Names that begin with a dot or do not end in .toml are ignored.
//
// It returns [ErrNoConfig] when the main file is missing and that is not allowed, and [*Problems] with everything that
// is wrong otherwise; then there is no configuration. Load opens no directory that the configuration names, so a dead
// mount there cannot hang it.
func (s Sources) Load(env func(string) string) (*Config, error) {
	l := &loader{main: s.Main, index: map[string]position{}, bad: map[string]bool{}}
	cfg := Default(env)
	switch data, err := readFile(s.Main); {
	case err == nil:
		l.apply(cfg, s.Main, data)
	case !errors.Is(err, fs.ErrNotExist):
		l.fail(s.Main, err)
	case !s.AllowMissing:
		return nil, fmt.Errorf("%w: %s", ErrNoConfig, s.Main)
	}
	for _, path := range l.dropIns(s.DropIns) {
		data, err := readFile(path)
		if err != nil {
			l.fail(path, err)
			continue
		}
		l.apply(cfg, path, data)
	}
	cfg.fromSystem(env)
	if !l.partial {
		l.validate(cfg)
	}
	if problems := l.sorted(); len(problems) > 0 {
		return nil, &problems
	}
	return cfg, nil
}

// position is where a key was set last, or where a table began first.
type position struct {
	file string
	line int
}

// loader collects what one Load finds.
type loader struct {
	main     string
	files    []string            // in the order of reading
	index    map[string]position // by key path
	bad      map[string]bool     // key paths whose value was refused: rules between keys skip them
	partial  bool                // a file could not be read at all: what it would have set is unknown
	problems []Problem
	omitted  int // problems beyond maxProblems
}

// report records a problem and, when it names a key, excludes that key from further rules.
func (l *loader) report(p Problem) {
	if p.Path != "" {
		l.bad[p.Path] = true
	}
	if len(l.problems) == maxProblems {
		l.omitted++
		return
	}
	l.problems = append(l.problems, p)
}

// fail records that a file could not be read or parsed.
func (l *loader) fail(file string, err error) {
	l.partial = true
	l.files = append(l.files, file)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = fmt.Errorf("%s: %w", pathErr.Op, pathErr.Err) // the problem names the file already
	}
	l.report(Problem{File: file, Message: err.Error()})
}

// sorted returns the problems in reading order, ended by a line for those that were too many.
func (l *loader) sorted() Problems {
	sortProblems(l.problems, l.files)
	if l.omitted > 0 {
		l.problems = append(l.problems, Problem{File: l.main, Message: fmt.Sprintf("and %d more problems", l.omitted)})
	}
	return l.problems
}

// dropIns returns the files to read, in order. dirs are given the strongest first.
func (l *loader) dropIns(dirs []string) []string {
	chosen := map[string]string{} // by base name; empty: switched off
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			l.fail(dir, err)
			continue
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".toml") {
				continue
			}
			if _, masked := chosen[name]; masked {
				continue
			}
			chosen[name] = filepath.Join(dir, name)
			if isNull(chosen[name]) {
				chosen[name] = ""
			}
		}
	}
	var names []string
	for name, path := range chosen {
		if path != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > maxDropIns {
		l.fail(chosen[names[maxDropIns]], fmt.Errorf("more than %d drop-in files", maxDropIns))
		names = names[:maxDropIns]
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = chosen[name]
	}
	return paths
}

// isNull reports whether path leads to /dev/null.
func isNull(path string) bool {
	got, err := os.Stat(path)
	if err != nil {
		return false // reading it will say why
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(got, null)
}

// readFile reads a regular file of bounded size. Opening without blocking keeps a named pipe from hanging the start.
func readFile(path string) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("larger than %s", Size(maxFileSize))
	}
	return data, nil
}
