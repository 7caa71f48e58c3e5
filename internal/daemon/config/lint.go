package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/plainyaml"
)

// lint visits the whole tree, including unknown keys, notes the line of every key, and reports everything
// that two parsers could read differently. Decoding skips what lint reports.
func (s source) lint(root *yaml.Node) {
	noted := func(at string, line int) string {
		s.report.lines[at] = line
		return at
	}
	plainyaml.Walk{
		Key: func(in string, k, v *yaml.Node) string {
			at := noted(join(in, k.Value), k.Line)
			s.curly(at, v)
			return at
		},
		Item: func(in string, i int, item *yaml.Node) string {
			at := noted(fmt.Sprintf("%s[%d]", in, i), item.Line)
			s.curly(at, item)
			return at
		},
		Fault: s.fault,
	}.Tree(root)
}

// fault reports a part that is not plain YAML; for a value, on the line of its key.
func (s source) fault(at string, f plainyaml.Fault) {
	switch {
	case f.First > 0:
		s.report.failAt(f.Node.Line, join(at, f.Node.Value), f.Text)
	case f.InKey && f.Node.Kind == yaml.ScalarNode && f.Node.Tag != "!!merge" && f.Node.Value != "":
		s.report.failAt(f.Node.Line, join(at, f.Node.Value), f.Text)
	case f.InKey:
		s.report.failAt(f.Node.Line, at, f.Text)
	default:
		s.report.fail(at, f.Text)
	}
}

// maxShown is the largest number of bytes of the file's text that a problem repeats.
const maxShown = 64

// plainKey matches a key that needs no quotes.
var plainKey = lazily(`^[A-Za-z0-9_$-]{1,64}$`)

// join returns the path of a key inside another one. Ambiguous names are quoted and clipped.
func join(parent, key string) string {
	if !plainKey.MatchString(key) {
		key = plaintext.Quote(plaintext.Clip(key, maxShown))
	}
	if parent == "" {
		return key
	}
	return parent + "." + key
}
