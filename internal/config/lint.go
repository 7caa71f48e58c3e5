package config

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxDepth is deeper than anything a configuration needs.
const maxDepth = 24

// What to do about the parts of YAML that are left out: each is a second way to write something, and a password
// that begins with such a character is better told than cut.
const (
	aliasText  = "aliases (*name) are not used here; write the value itself, and put a text that begins with * in quotes"
	anchorText = "anchors (&name) are not used here; put a text that begins with & in quotes"
	tagText    = "tags (!name) are not used here; put a text that begins with ! in quotes"
	mergeText  = "merge keys (<<) are not used here; write the keys themselves"
)

// lint walks the whole tree, known keys or not, notes the line of every key, and reports what would let two readers
// see two different files: duplicate keys, aliases, merge keys, tags. What it reports, decoding leaves out.
func (d *decoder) lint(n *yaml.Node, key string, depth int) {
	switch {
	case depth > maxDepth:
		d.fail(key, "this is nested too deeply")
		n.Content = nil
	case n.Kind == yaml.AliasNode:
		d.fail(key, aliasText)
	case n.Anchor != "":
		d.fail(key, anchorText)
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(key, tagText)
	}
	switch n.Kind {
	case yaml.MappingNode:
		d.lintMapping(n, key, depth)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", key, i)
			d.lines[at] = item.Line
			d.lint(item, at, depth+1)
		}
	}
}

// lintMapping also drops the pairs that it reports, so that each key is there once.
func (d *decoder) lintMapping(n *yaml.Node, key string, depth int) {
	kept := n.Content[:0:0]
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := join(key, k.Value)
		first, twice := seen[k.Value]
		switch {
		case k.Kind == yaml.AliasNode:
			d.failAt(k.Line, key, aliasText)
		case k.Tag == "!!merge":
			d.failAt(k.Line, key, mergeText)
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str":
			d.failAt(k.Line, key, "a key must be text; put it in quotes")
		case k.Anchor != "":
			d.failAt(k.Line, key, anchorText)
		case twice:
			d.failAt(k.Line, at, fmt.Sprintf("duplicate key, first on line %d; keep one", first))
		default:
			seen[k.Value] = k.Line
			d.lines[at] = k.Line
			d.lint(v, at, depth+1)
			kept = append(kept, k, v)
		}
	}
	n.Content = kept
}

// plainKey is what needs no quotes in the name of a key.
var plainKey = lazily(`^[A-Za-z0-9_$-]{1,64}$`)

// join names a key inside another. Names that could be mistaken for something else are quoted and bounded.
func join(parent, key string) string {
	if !plainKey.MatchString(key) {
		key = strconv.Quote(clip(key))
	}
	if parent == "" {
		return key
	}
	return parent + "." + key
}

// clip bounds a text of the file for showing it.
func clip(s string) string {
	const most = 64
	for i := range s {
		if i >= most {
			return s[:i] + "…"
		}
	}
	return s
}
