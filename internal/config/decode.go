package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// document is one parsed file on its way into a Config.
type document struct {
	*loader
	file   string
	places map[string]place
}

// apply merges one file into cfg. The library parses and checks the syntax; its own decoder stops at the first value
// of a wrong type, so the values are placed here, where all of them are looked at.
func (l *loader) apply(cfg *Config, file string, data []byte) {
	l.files = append(l.files, file)
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		l.partial = true
		p := Problem{File: file, Message: strings.TrimPrefix(err.Error(), "toml: ")}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, column := at.Position()
			p.Line, p.Excerpt = line, excerpt(data, line, column)
		}
		if tokenText.MatchString(p.Message) {
			p.Message = "syntax error beside a value that looks like a token"
		}
		l.report(p)
		return
	}
	d := &document{loader: l, file: file, places: placesIn(data)}
	for path, at := range d.places {
		if _, seen := l.index[path]; !seen || !at.table {
			l.index[path] = position{file, at.line}
		}
	}
	d.table("", reflect.ValueOf(cfg).Elem(), tree)
	if cfg.Version != Version && !l.bad["version"] {
		d.problem("version", fmt.Sprintf("want %d, got %d", Version, cfg.Version), "this program reads no other format")
	}
	cfg.Version = Version
}

// problem reports something about a key of this file.
func (d *document) problem(path, message, hint string) {
	d.report(Problem{File: d.file, Line: d.places[path].line, Path: path, Message: message, Hint: hint})
}

// table places the keys of one table into a struct.
func (d *document) table(path string, dst reflect.Value, src map[string]any) {
	fields := fieldsOf(dst.Type())
	for _, key := range slices.Sorted(maps.Keys(src)) {
		full := joinPath(path, key)
		if i, known := fields[key]; known {
			d.value(full, dst.Field(i), src[key])
			continue
		}
		d.unknown(path, full, key, slices.Sorted(maps.Keys(fields)))
	}
}

// unknown reports a key that does not exist, with the likeliest one that does: a neighbour with a similar name, or the
// same name in another table.
func (d *document) unknown(table, full, key string, known []string) {
	if len(d.problems) == maxProblems {
		d.problem(full, "unknown key", "") // only counted: a file of nothing but such keys must not cost their search
		return
	}
	hint := didYouMean(key, known)
	if hint == "" {
		for _, k := range Keys() {
			if strings.HasSuffix(k, "."+key) {
				hint = fmt.Sprintf("did you mean %q?", k)
				break
			}
		}
	}
	if hint == "" {
		hint = "known here: " + strings.Join(known, ", ")
	}
	what := "unknown key"
	if table == "" {
		what = "unknown key or table"
	}
	d.problem(full, what, hint)
}

// value places one value.
func (d *document) value(path string, dst reflect.Value, src any) {
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(path, u, src)
		return
	}
	switch dst.Kind() {
	case reflect.Struct:
		if table, ok := d.wantTable(path, src, "["+path+"]"); ok {
			d.table(path, dst, table)
		}
	case reflect.Map:
		if table, ok := d.wantTable(path, src, "["+path+".NAME]"); ok {
			d.named(path, dst, table)
		}
	case reflect.Slice:
		d.list(path, dst, src)
	case reflect.String:
		if s, ok := src.(string); ok {
			dst.SetString(s)
			return
		}
		d.problem(path, "want a string in quotes, got "+kindName(src), "")
	case reflect.Bool:
		if b, ok := src.(bool); ok {
			dst.SetBool(b)
			return
		}
		d.problem(path, "want true or false, got "+kindName(src), "")
	case reflect.Int:
		if n, ok := src.(int64); ok {
			dst.SetInt(n)
			return
		}
		d.problem(path, "want a whole number, got "+kindName(src), "")
	default:
		panic("config: no decoder for " + dst.Type().String() + " at " + path) // a new field of a new kind: a test meets it
	}
}

// text places a value that is written as a string with a grammar of its own.
func (d *document) text(path string, dst encoding.TextUnmarshaler, src any) {
	s, ok := src.(string)
	if !ok {
		hint := ""
		if _, isInt := src.(int64); isInt {
			switch dst.(type) {
			case *Size, *ChunkSize:
				hint = `sizes are strings with a unit, such as "64MiB"`
			case *Rate:
				hint = `rates are strings with a unit, such as "500kB/s"`
			case *Duration, *DurationRange:
				hint = `durations are strings with a unit, such as "30s"`
			}
		}
		d.problem(path, "want a string in quotes, got "+kindName(src), hint)
		return
	}
	err := dst.UnmarshalText([]byte(s))
	var refused *valueError
	switch {
	case errors.As(err, &refused):
		d.problem(path, refused.msg, refused.hint)
	case err != nil:
		d.problem(path, err.Error(), "")
	}
}

// wantTable refuses anything but a table; header is how it is written.
func (d *document) wantTable(path string, src any, header string) (map[string]any, bool) {
	table, ok := src.(map[string]any)
	if !ok {
		d.problem(path, "want a table, got "+kindName(src), "write "+header+" and its keys below")
	}
	return table, ok
}

// named places tables that a person names: [watch.NAME].
func (d *document) named(path string, dst reflect.Value, src map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(src)) {
		full := joinPath(path, name)
		if !isBare(name) || len(name) > maxName {
			d.problem(full, fmt.Sprintf("a name is made of letters, digits, _ and -, at most %d", maxName), "")
			continue
		}
		table, ok := d.wantTable(full, src[name], "["+path+".NAME]")
		if !ok {
			continue
		}
		entry := dst.MapIndex(reflect.ValueOf(name))
		if !entry.IsValid() {
			entry = reflect.ValueOf(defaultWatch(name))
			dst.SetMapIndex(reflect.ValueOf(name), entry)
		}
		d.table(full, entry.Elem(), table)
	}
}

// list replaces a list of strings, or of values that are written as strings.
func (d *document) list(path string, dst reflect.Value, src any) {
	list, ok := src.([]any)
	if !ok {
		hint := ""
		if s, isString := src.(string); isString {
			hint = "write [" + quote(s) + "]"
		}
		d.problem(path, "want a list of strings, got "+kindName(src), hint)
		return
	}
	out := reflect.MakeSlice(dst.Type(), len(list), len(list)) // a refused one stays empty: the ones after it keep their places
	for i, v := range list {
		d.value(elementPath(path, i), out.Index(i), v)
	}
	dst.Set(out)
}

// fieldsOf returns the indexes of a struct's fields by key.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("toml"); key != "" && key != "-" {
			fields[key] = i
		}
	}
	return fields
}

// kindName names the type of a decoded value in TOML's words, with its article.
func kindName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64:
		return "a number without a unit"
	case float64:
		return "a number with a fraction"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	case time.Time, toml.LocalDate, toml.LocalDateTime, toml.LocalTime:
		return "a date or time"
	default:
		return "something else"
	}
}

// Keys returns the path of every key there is, sorted, with NAME for a name that a person chooses.
func Keys() []string {
	keys := keysOf("", reflect.TypeFor[Config]())
	slices.Sort(keys)
	return keys
}

func keysOf(path string, t reflect.Type) []string {
	var keys []string
	for key, i := range fieldsOf(t) {
		full, ft := joinPath(path, key), t.Field(i).Type
		if ft.Kind() == reflect.Map {
			full, ft = joinPath(full, "NAME"), ft.Elem().Elem()
		}
		if ft.Kind() == reflect.Struct && !reflect.PointerTo(ft).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			keys = append(keys, keysOf(full, ft)...)
			continue
		}
		keys = append(keys, full)
	}
	return keys
}
