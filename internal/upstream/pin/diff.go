package pin

import (
	"maps"
	"slices"
	"strconv"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Change is one place at which two definitions differ. Texts are quoted, with all invisible
// characters escaped; "" means that nothing is there.
type Change struct {
	Path          string `json:"path"` // member names and [n], joined by dots
	Before, After string
}

// Diff lists where after differs from before, in the order of the paths. A nil definition is
// empty.
func Diff(before, after []byte) []Change {
	was, is := flat(before), flat(after)
	paths := maps.Clone(was)
	maps.Copy(paths, is)
	var out []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if was[path] != is[path] {
			out = append(out, Change{path, was[path], is[path]})
		}
	}
	return out
}

// flat returns the leaves of a definition by their path.
func flat(def []byte) map[string]string {
	out := make(map[string]string)
	if def != nil {
		flatten(out, "", def)
	}
	return out
}

func flatten(out map[string]string, path string, v []byte) {
	empty := true
	for name, member := range rawjson.Members(v) {
		empty = false
		flatten(out, below(path, word(name)), member)
	}
	n := 0
	for e := range rawjson.Elements(v) {
		empty = false
		flatten(out, path+"["+strconv.Itoa(n)+"]", e)
		n++
	}
	if empty {
		out[path] = leaf(v)
	}
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// word returns a member's name, quoted unless it is plain.
func word(name string) string {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '$') {
			return plaintext.Quote(name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}

func leaf(v []byte) string {
	if text, ok := wire.Text(v); ok {
		return plaintext.Quote(text)
	}
	return string(v)
}
