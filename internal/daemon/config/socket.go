package config

import (
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Socket returns listen.unix of the file at path: auto, off or an absolute path. It is auto if the value
// is missing or has a problem, and if the file cannot be read. Commands for a running daemon use it: it
// decodes no other value, so it fetches no secret and ignores every problem elsewhere.
func Socket(path string, env func(string) (string, bool)) string {
	abs, err := filepath.Abs(path)
	if path == "" || err != nil {
		return "auto"
	}
	content, err := readFile(abs, nil)
	if err != nil {
		return "auto"
	}
	r := newReport(path)
	d := &decoder{dir: filepath.Dir(abs), o: Options{Env: env}, report: r, src: source{r}, known: map[reflect.Type][]field{}}
	n := member(member(d.src.tree(content), "listen"), "unix")
	if n == nil {
		return "auto"
	}
	return d.socket(n)
}

func (d *decoder) socket(n *yaml.Node) string {
	var l Listen
	for _, f := range d.fields(reflect.TypeOf(l)) {
		if f.key == "unix" {
			d.value(n, "listen.unix", f, reflect.ValueOf(&l).Elem().Field(f.index))
		}
	}
	if l.Unix == "" || len(d.report.problems) > 0 {
		return "auto"
	}
	return l.Unix
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
