package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/plainyaml"
)

// lint walks the whole tree, known keys or not, notes the line of every key, and reports anything that two readers
// could read differently. Decoding leaves out what lint reports.
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

// fault notes what is not plain, a value on the line of its key.
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

// maxShown is how much of a text of the file a problem repeats.
const maxShown = 64

// plainKey is what needs no quotes in the name of a key.
var plainKey = lazily(`^[A-Za-z0-9_$-]{1,64}$`)

// join names a key inside another. Names that could be mistaken for something else are quoted and bounded.
func join(parent, key string) string {
	if !plainKey.MatchString(key) {
		key = plaintext.Quote(plaintext.Clip(key, maxShown))
	}
	if parent == "" {
		return key
	}
	return parent + "." + key
}
