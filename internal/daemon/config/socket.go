package config

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Socket returns listen.unix of the file at path: auto, off or an absolute path. It is auto if the value
// is missing or has a problem, and if the file cannot be read. Commands for a running daemon use it: it
// decodes no other value, so it fetches no secret and ignores every problem elsewhere.
func Socket(path string, env func(string) (string, bool)) string {
	var l Listen
	if alone(path, env, "listen", "unix", &l, false); l.Unix == "" {
		return "auto"
	}
	return l.Unix
}

// AuditDir returns audit.dir of the file at path; empty: the file does not set it. ok is false
// if the file cannot be read as YAML or the value has a problem. Commands that only read the
// log use it when another part of the file has a problem.
func AuditDir(path string, env func(string) (string, bool)) (dir string, ok bool) {
	var a Audit
	ok = alone(path, env, "audit", "dir", &a, true)
	return a.Dir, ok
}

// alone decodes one value of a section of the file at path into the field of the struct *into,
// and nothing else of the file. It returns false and decodes nothing if the file cannot be read
// or the value has a problem, and with strict also if the section can be read in more than one way.
func alone[T any](path string, env func(string) (string, bool), section, key string, into *T, strict bool) bool {
	abs, err := filepath.Abs(path)
	if path == "" || err != nil {
		return false
	}
	content, err := readFile(abs, nil)
	if err != nil {
		return false
	}
	r := newReport(path)
	d := &decoder{dir: filepath.Dir(abs), o: Options{Env: env}, report: r, src: source{r}, known: map[reflect.Type][]field{}}
	tree := d.src.tree(content)
	n := member(member(tree, section), key)
	if strict && !d.plain(tree, section, reflect.TypeFor[T]()) {
		return false
	}
	if n == nil {
		return tree != nil
	}
	var value T
	for _, f := range d.fields(reflect.TypeFor[T]()) {
		if f.key == key {
			d.value(n, section+"."+key, f, reflect.ValueOf(&value).Elem().Field(f.index))
		}
	}
	if Fatal(r.problems) {
		return false
	}
	*into = value
	return true
}

// plain reports whether a section can be read in one way only: it is written once, as it should
// be, with each key once and known keys only, or not at all.
func (d *decoder) plain(tree *yaml.Node, section string, t reflect.Type) bool {
	if tree == nil || tree.Kind != yaml.MappingNode {
		return false
	}
	var found []*yaml.Node
	for name, n := range pairs(tree) {
		if strings.EqualFold(name, section) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return true
	}
	only := member(tree, section)
	if len(found) > 1 || only == nil || only.Kind != yaml.MappingNode {
		return false
	}
	seen := make(map[string]bool)
	for name := range pairs(only) {
		if seen[name] || !slices.ContainsFunc(d.fields(t), func(f field) bool { return f.key == name }) {
			return false
		}
		seen[name] = true
	}
	return true
}

// member returns the first value of a key in a mapping; nil: there is none.
func member(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for name, child := range pairs(n) {
		if name == key {
			return child
		}
	}
	return nil
}
