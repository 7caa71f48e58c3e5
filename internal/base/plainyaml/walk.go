package plainyaml

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxDepth is deeper than any file of ours needs; the root is at depth 0.
const MaxDepth = 24

// AliasText is what to say about an alias, also about one without its anchor.
const AliasText = "aliases (*name) are not used here; write the value itself, and put a text that begins with * in quotes"

// Advice for the parts of YAML that are not supported. Each is a second way to
// write the same value, and a password that begins with such a character must
// cause an error instead of being cut.
const (
	anchorText = "anchors (&name) are not used here; put a text that begins with & in quotes"
	tagText    = "tags (!name) are not used here; put a text that begins with ! in quotes"
	colonText  = "a text without quotes cannot end with a colon: put it in quotes, or a space behind the colon"
	mergeText  = "merge keys (<<) are not used here; write the keys themselves"
)

// Walk goes through a tree. Where values stand is named by the caller.
type Walk struct {
	Key   func(in string, k, v *yaml.Node) (at string)        // v stands under k, which is without fault
	Item  func(in string, i int, item *yaml.Node) (at string) // item stands in a list
	Fault func(at string, f Fault)                            // of a key, at is where its mapping stands
}

// Fault is a node that is not plain.
type Fault struct {
	Node  *yaml.Node
	InKey bool   // the node is the key of a mapping, and is taken out of it
	First int    // not 0: that key stands on this line already
	Text  string // what is wrong and what to do; it repeats nothing of the file
}

// Tree walks root, known keys or not, in the order of the file, and continues
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

// keyFault is one without text when nothing is wrong; first is the line of the
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

// unplainText is what is wrong with a node by itself.
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

// otherThanText reports whether a bare word is a truth value, a null or a number
// of base 60 to a parser of YAML 1.1 (https://yaml.org/type), and text to one
// of 1.2. The letters y and n alone, which are truth values there too, are text
// to the parsers in use.
func otherThanText(word string) bool {
	switch strings.ToLower(word) {
	case "yes", "no", "on", "off", "=":
		return true
	}
	digits := strings.TrimLeft(word, "+-")
	return strings.Contains(digits, ":") && strings.Trim(digits, "0123456789:._") == ""
}

// Pairs walks a mapping.
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

// tagStarts are the places of the exclamation marks that can begin a tag.
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

// showTags gives the style of a tagged node also to one whose tag is ! alone.
// The YAML library says nothing of that tag, and by the standard it makes text
// of a number. A mapping without braces begins where its first key does, and
// the tag is that key's.
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
