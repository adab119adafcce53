package config

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// uncommented returns the example as it looks with every key switched on.
func uncommented() []byte {
	return regexp.MustCompile(`(?m)^#([^ \n])`).ReplaceAll(Example(), []byte("$1"))
}

// The packaged file is valid as it is, and valid and still the defaults when everything in it is switched on.
func TestExampleIsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	asIs, err := Load(write(t, dir, "a.toml", string(Example())), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	on, err := Load(write(t, dir, "b.toml", string(uncommented())), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	camera := defaultWatch("camera")
	camera.Path, camera.Include, camera.Exclude, camera.Temporary = on.Watch["camera"].Path, []string{}, []string{}, []string{}
	if !reflect.DeepEqual(on.Watch, map[string]*Watch{"camera": camera}) {
		t.Errorf("the example's watch is %+v, the default %+v", on.Watch["camera"], camera)
	}
	if on.Uplink.Endpoint == "" {
		t.Error("the example has no endpoint")
	}
	on.Watch, on.Uplink.Endpoint = asIs.Watch, asIs.Uplink.Endpoint
	if !reflect.DeepEqual(on, asIs) {
		t.Errorf("the example's values are not the defaults:\n got %+v\nwant %+v", on, asIs)
	}
}

// The example names every key there is and no other, explains each one, and sets nothing by itself.
func TestExampleHasEveryKey(t *testing.T) {
	var keys []string
	for path, at := range placesIn(uncommented()) {
		if !at.table {
			keys = append(keys, strings.Replace(path, "watch.camera.", "watch.NAME.", 1))
		}
	}
	slices.Sort(keys)
	if want := Keys(); !slices.Equal(keys, want) {
		t.Errorf("keys of the example\n%v\nkeys of the program\n%v", keys, want)
	}
	before := ""
	for line := range bytes.SplitSeq(Example(), []byte("\n")) {
		text := string(line)
		if text != "" && !strings.HasPrefix(text, "#") {
			t.Errorf("%q is switched on", text)
		}
		if strings.HasPrefix(text, "#") && strings.Contains(text, " = ") && !strings.HasPrefix(text, "# ") && !strings.HasPrefix(before, "# ") {
			t.Errorf("%q has no line that explains it", text)
		}
		before = text
	}
	Example()[0] = 'X'
	if Example()[0] != '#' {
		t.Error("a caller can change the example")
	}
}

// Every key has a line in the index, in whatever form the document writes it.
func TestPlaces(t *testing.T) {
	doc := "a.b = 1\n\n[x.\"y z\"]\nk = [ 'p',\n  'q', [1], {n = 2} ]\nt = { u = 1,\n  v.w = 2 }\n[x]\nz = '''\n\n'''\nlast = 1\n[[arr]]\nm = 1\n[[arr]]\nm = 2\n"
	want := map[string]place{
		"a": {1, true}, "a.b": {1, false}, "x": {3, true}, `x."y z"`: {3, true}, `x."y z".k`: {4, false}, `x."y z".k[0]`: {4, false},
		`x."y z".k[1]`: {5, false}, `x."y z".k[3]`: {5, false}, `x."y z".t`: {6, true}, `x."y z".t.u`: {6, false}, `x."y z".t.v`: {7, true},
		`x."y z".t.v.w`: {7, false}, "x.z": {9, false}, "x.last": {12, false}, "arr": {13, true}, "arr.m": {14, false},
	}
	if got := placesIn([]byte(doc)); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
