package onboard

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// putTOML appends a table, or replaces the one of that name.
func (d document) putTOML(text []byte, name string, entry object) ([]byte, error) {
	nl := newlineOf(text)
	table := tomlTable(append(slices.Clone(d.keys), name), entry, nl)
	cuts, err := d.tomlRanges(text, name)
	if err != nil {
		return nil, err
	}
	if len(cuts) > 0 {
		cuts[0].text = table
		return apply(text, cuts...)
	}
	begin := ""
	if len(text) > 0 && text[len(text)-1] != '\n' {
		begin = nl
	}
	if !blank(text) {
		begin += nl
	}
	return apply(text, splice{len(text), len(text), begin + table})
}

func tomlTable(keys []string, entry object, nl string) string {
	var b strings.Builder
	b.WriteString("[" + dotted(keys) + "]" + nl)
	for _, p := range entry {
		b.WriteString(tomlKey(p.key) + " = " + flow(p.value) + nl)
	}
	return b.String()
}

func dotted(keys []string) string {
	var out []string
	for _, key := range keys {
		out = append(out, tomlKey(key))
	}
	return strings.Join(out, ".")
}

func tomlKey(key string) string {
	bare := key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
	if bare {
		return key
	}
	return quote(key)
}

// dropTOML removes the table of an entry and the tables below it.
func (d document) dropTOML(text []byte, name string) ([]byte, error) {
	cuts, err := d.tomlRanges(text, name)
	if err != nil {
		return nil, err
	}
	if n := len(cuts); n > 0 && cuts[n-1].end == len(text) { // at the end the blank line before it goes too
		at := &cuts[n-1].at
		*at = len(bytes.TrimRight(text[:*at], space))
		if *at > 0 {
			*at += len(newlineOf(text))
		}
		*at = min(*at, len(text))
	}
	return apply(text, cuts...)
}

// expression is a header or a key with its value: its full key, and the offset of its line.
type expression struct {
	key    []string
	at     int
	header bool
}

// tomlRanges returns the lines of an entry. Adjacent lines are one range.
func (d document) tomlRanges(text []byte, name string) ([]splice, error) {
	all, err := expressions(text)
	if err != nil {
		return nil, err
	}
	want := append(slices.Clone(d.keys), name)
	var out []splice
	for i, e := range all {
		if len(e.key) < len(want) || !slices.Equal(e.key[:len(want)], want) {
			continue
		}
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1].at
		}
		end = aboveComments(text, e.at, end)
		if n := len(out); n > 0 && out[n-1].end == e.at {
			out[n-1].end = end
			continue
		}
		out = append(out, splice{e.at, end, ""})
	}
	return out, nil
}

// expressions returns the headers and keys of a text.
func expressions(text []byte) ([]expression, error) {
	var p unstable.Parser
	p.Reset(text)
	var out []expression
	var table []string
	for p.NextExpression() {
		n := p.Expression()
		if n.Kind != unstable.Table && n.Kind != unstable.ArrayTable && n.Kind != unstable.KeyValue {
			continue
		}
		key, at := keyOf(n)
		e := expression{key: key, at: lineStart(text, at), header: n.Kind != unstable.KeyValue}
		if e.header {
			table = key
		} else {
			e.key = append(slices.Clone(table), key...)
		}
		out = append(out, e)
	}
	if err := p.Error(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return out, nil
}

// keyOf returns the parts of a key and the offset of the first.
func keyOf(n *unstable.Node) (parts []string, at int) {
	at = -1
	for it := n.Key(); it.Next(); {
		k := it.Node()
		if at < 0 {
			at = int(k.Raw.Offset)
		}
		parts = append(parts, string(k.Data))
	}
	return parts, max(at, 0)
}

// aboveComments moves end up over the comments directly above it, which belong to the next
// expression, but not beyond the line of start.
func aboveComments(text []byte, start, end int) int {
	for end > start {
		line := lineStart(text, end-1)
		if line <= start || !strings.HasPrefix(strings.TrimLeft(string(text[line:end]), " \t"), "#") {
			return end
		}
		end = line
	}
	return end
}
