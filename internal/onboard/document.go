package onboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"
)

// document is the place of the servers in a file.
type document struct {
	format Format
	keys   []string
	list   bool
}

// splice replaces the bytes from at to end of a text.
type splice struct {
	at, end int
	text    string
}

// apply makes splices in order. It returns an error if they overlap or are outside of the
// text: then this package does not support the layout of the text.
func apply(text []byte, all ...splice) ([]byte, error) {
	slices.SortStableFunc(all, func(a, b splice) int { return a.at - b.at })
	out := []byte{}
	done := 0
	for _, s := range all {
		if s.at < done || s.end < s.at || s.end > len(text) {
			return nil, fmt.Errorf("%w: the positions of its entries do not match its text", ErrShape)
		}
		out = append(append(out, text[done:s.at]...), s.text...)
		done = s.end
	}
	return append(out, text[done:]...), nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// decode reads a text. A blank text is an empty map.
func decode(f Format, text []byte) (any, error) {
	body := bytes.TrimPrefix(text, byteOrderMark)
	out := map[string]any{}
	if blank(body) {
		return out, nil
	}
	var err error
	switch f {
	case TOML:
		err = toml.Unmarshal(body, &out)
	case YAML:
		err = decodeYAML(body, &out)
	default:
		err = decodeJSON(body, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return out, nil
}

func decodeJSON(text []byte, out *map[string]any) error {
	plain, err := hujson.Standardize(slices.Clone(text))
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	return dec.Decode(out)
}

func decodeYAML(text []byte, out *map[string]any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(out); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	return nil
}

// servers returns the value that contains the servers; nil: none.
func (d document) servers(tree any) any {
	for _, key := range d.keys {
		m, _ := tree.(map[string]any)
		tree = m[key]
	}
	return tree
}

// find returns an entry of a decoded text.
func (d document) find(tree any, name string) (map[string]any, bool) {
	if d.list {
		all, _ := d.servers(tree).([]any)
		for _, item := range all {
			if m, ok := item.(map[string]any); ok && m["name"] == name {
				return m, true
			}
		}
		return nil, false
	}
	all, _ := d.servers(tree).(map[string]any)
	v, found := all[name]
	m, _ := v.(map[string]any)
	return m, found
}

// others returns a decoded text without an entry, and without the maps that only it made
// non-empty.
func (d document) others(tree any, name string) any { return d.without(tree, d.keys, name) }

func (d document) without(tree any, keys []string, name string) any {
	m, ok := tree.(map[string]any)
	if list, isList := tree.([]any); len(keys) == 0 && isList {
		return emptied(slices.DeleteFunc(slices.Clone(list), func(item any) bool {
			m, ok := item.(map[string]any)
			return ok && m["name"] == name
		}))
	}
	if !ok {
		return tree
	}
	m = maps.Clone(m)
	if len(keys) == 0 {
		delete(m, name)
	} else if below := d.without(m[keys[0]], keys[1:], name); below != nil {
		m[keys[0]] = below
	} else {
		delete(m, keys[0])
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

func emptied(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list
}
