package config

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
)

// parentGroup is the group of a pattern that names the record.
const parentGroup = "parent"

// maxPattern bounds a pattern, in bytes, and maxParentID what it finds (the server takes no more).
const (
	maxPattern  = 1024
	maxParentID = 1024
)

// checkBinding checks the keys that belong to one way of finding the record.
func (l *loader) checkBinding(key string, w *Watch) {
	l.checkSpan(key+".sidecar_wait", w.SidecarWait, time.Second, 24*time.Hour)
	if !l.sound(key+".parent", key+".pattern") {
		return
	}
	if w.Parent == ParentSidecar && w.Repeated == RepeatedSkip && l.sound(key+".repeated") {
		l.problemAt(key+".repeated", "which record a file repeats is not known before its sidecar comes", "drop this key")
	}
	switch {
	case w.Parent != ParentPattern && w.Pattern != "":
		l.problemAt(key+".pattern", "the pattern is not used", "set parent = \"pattern\", or drop this key")
	case w.Parent != ParentPattern:
	case w.Pattern == "":
		l.problemAt(key+".parent", "parent = \"pattern\" needs the key pattern", "pattern = \"(?P<parent>[^/]+)/.*\"")
	default:
		compiled, refused := compilePattern(w.Pattern)
		if refused != nil {
			l.problemAt(key+".pattern", refused.msg, refused.hint)
		}
		w.pattern = compiled
	}
}

// compilePattern makes a pattern match whole paths, line ends included: a name may hold any byte.
func compilePattern(p string) (*regexp.Regexp, *valueError) {
	if len(p) > maxPattern {
		return nil, &valueError{msg: fmt.Sprintf("the pattern has %d bytes, at most %d are allowed", len(p), maxPattern)}
	}
	re, err := regexp.Compile(p)
	var malformed *syntax.Error
	if errors.As(err, &malformed) {
		at := ""
		if i := strings.Index(p, malformed.Expr); i >= 0 && malformed.Expr != p {
			at = fmt.Sprintf(" at character %d", 1+len([]rune(p[:i])))
		}
		return nil, &valueError{
			msg:  "malformed pattern: " + malformed.Code.String() + at + ": " + quote(malformed.Expr),
			hint: "in a string in single quotes a backslash stands for itself",
		}
	}
	if err != nil {
		return nil, &valueError{msg: "malformed pattern: " + err.Error()}
	}
	named := false
	for _, group := range re.SubexpNames() {
		switch group {
		case "":
		case parentGroup:
			named = true
		default:
			return nil, &valueError{
				msg:  "the pattern has a group named " + quote(group) + ", which means nothing",
				hint: didYouMean(group, []string{parentGroup}),
			}
		}
	}
	if !named {
		return nil, &valueError{msg: "the pattern has no group named parent", hint: "(?P<parent>[^/]+) takes one directory or name"}
	}
	whole, err := regexp.Compile(`\A(?s:` + p + `)\z`)
	if err != nil {
		return nil, &valueError{msg: "malformed pattern: " + err.Error()}
	}
	return whole, nil
}

// ParentIn returns the record that the pattern finds in a path below the watch's root, in the path's own bytes; false where
// the pattern does not match the whole path, or finds nothing that can be a record's ID.
func (w *Watch) ParentIn(rel string) (parent string, ok bool) {
	if w.pattern == nil {
		return "", false
	}
	found := w.pattern.FindStringSubmatch(rel)
	if found == nil {
		return "", false
	}
	parent = found[w.pattern.SubexpIndex(parentGroup)]
	return parent, parent != "" && len(parent) <= maxParentID
}
