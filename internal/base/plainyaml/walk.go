package plainyaml

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxDepth is the deepest accepted nesting; the root is at depth 0.
const MaxDepth = 24

// AliasText is the message about an alias, with or without an anchor.
const AliasText = "aliases (*name) are not supported here; write the value itself, and put a text that begins with * in quotes"

// Messages about the parts of YAML that are not supported. Each part is a second way to
// write the same value. A password that begins with such a character must
// cause an error instead of losing it.
const (
	anchorText = "anchors (&name) are not supported here; put a text that begins with & in quotes"
	tagText    = "tags (!name) are not supported here; put a text that begins with ! in quotes"
	colonText  = "a text without quotes cannot end with a colon: put it in quotes, or write a space after the colon"
	mergeText  = "merge keys (<<) are not supported here; write the keys themselves"
)

// Walk visits the nodes of a tree. Key and Item return the name of a node's place from
// the name of the place around it; the caller defines these names.
type Walk struct {
	Key   func(in string, k, v *yaml.Node) (at string)        // v is the value of k, a key without fault
	Item  func(in string, i int, item *yaml.Node) (at string) // item is element i of a list
	Fault func(at string, f Fault)                            // for a key, at is the place of its mapping
}

// Fault is a node that is not plain.
type Fault struct {
	Node  *yaml.Node
	InKey bool   // the node is the key of a mapping, and is removed from it
	First int    // not 0: the line on which the same key occurs first
	Text  string // what is wrong and what to do; it repeats nothing of the file
}

// Tree visits all nodes of root in the order of the file, and continues
// after a fault. A pair with a faulty key is removed from its mapping, so that
// each key occurs once; a node that is nested too deeply is emptied.
func (w Walk) Tree(root *yaml.Node) { w.value(root, "", 0) }

func (w Walk) value(n *yaml.Node, at string, depth int) {
	if depth > MaxDepth {
		w.Fault(at, Fault{Node: n, Text: "this is nested too deeply"})
		n.Content = nil
	} else if text := unplainText(n); text != "" {
		w.Fault(at, Fault{Node: n, Text: text})
	}
	switch n.Kind {
	case yaml.MappingNode:
		w.mapping(n, at, depth)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			w.value(item, w.Item(at, i, item), depth+1)
		}
	}
}

func (w Walk) mapping(n *yaml.Node, at string, depth int) {
	kept := n.Content[:0:0]
	lines := make(map[string]int)
	for k, v := range Pairs(n) {
		if f := keyFault(k, lines[k.Value]); f.Text != "" {
			w.Fault(at, f)
			continue
		}
		lines[k.Value] = k.Line
		w.value(v, w.Key(at, k, v), depth+1)
		kept = append(kept, k, v)
	}
	n.Content = kept
}

// keyFault returns the fault of a key; an empty Text means none. first is the line of the
// same key before, or 0.
func keyFault(k *yaml.Node, first int) Fault {
	f := Fault{Node: k, InKey: true, Text: unplainText(k)}
	switch {
	case f.Text != "":
	case k.Tag == "!!merge":
		f.Text = mergeText
	case k.Kind != yaml.ScalarNode || k.Tag != "!!str" || k.Style == 0 && otherThanText(k.Value):
		f.Text = "a key must be text; put it in quotes"
	case first > 0:
		f.First = first
		f.Text = fmt.Sprintf("duplicate key, first on line %d; keep one", first)
	}
	return f
}

// unplainText returns the fault of a node without regard to its place; empty: none.
func unplainText(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return AliasText
	case n.Anchor != "":
		return anchorText
	case n.Style&yaml.TaggedStyle != 0:
		return tagText
	case n.Kind == yaml.ScalarNode && n.Style == 0 && strings.HasSuffix(n.Value, ":"):
		return colonText
	}
	return ""
}

// otherThanText reports whether a word without quotes is a boolean, the default key (=) or
// a number of base 60 to a parser of YAML 1.1 (https://yaml.org/type), and text to one of
// 1.2. The single letters y and n, also booleans in YAML 1.1, are text to the parsers in use.
func otherThanText(word string) bool {
	switch strings.ToLower(word) {
	case "yes", "no", "on", "off", "=":
		return true
	}
	digits := strings.TrimLeft(word, "+-")
	return strings.Contains(digits, ":") && strings.Trim(digits, "0123456789:._") == ""
}

// Pairs yields the keys and values of a mapping.
func Pairs(n *yaml.Node) func(yield func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// place is a line and a column, both from 1.
type place struct{ line, column int }

// tagStarts returns the places of the exclamation marks that can begin a tag.
func tagStarts(content []byte) map[place]bool {
	var starts map[place]bool
	at, last := place{1, 1}, rune(0)
	for _, r := range string(content) {
		if r == '!' && last != '!' {
			if starts == nil {
				starts = make(map[place]bool)
			}
			starts[at] = true
		}
		switch {
		case r == '\n' && last == '\r':
		case r == '\n' || r == '\r':
			at = place{at.line + 1, 1}
		default:
			at.column++
		}
		last = r
	}
	return starts
}

// showTags sets the tagged style on nodes with the tag !, which the YAML library does not
// report. By the standard this tag turns a number into text. A mapping without braces
// begins at the same place as its first key; a tag there belongs to the key.
func showTags(n *yaml.Node, starts map[place]bool) {
	if len(starts) == 0 {
		return
	}
	at := place{n.Line, n.Column}
	keys := n.Kind == yaml.MappingNode && len(n.Content) > 0 && at == place{n.Content[0].Line, n.Content[0].Column}
	if starts[at] && !keys {
		n.Style |= yaml.TaggedStyle
	}
	for _, child := range n.Content {
		showTags(child, starts)
	}
}
