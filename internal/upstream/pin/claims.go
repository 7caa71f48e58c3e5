package pin

import (
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// Claims are statements of a server about one of its approved tools. Nothing verifies them.
type Claims struct {
	Definition  string // digest of the definition
	ReadOnly    bool   // readOnlyHint
	Destructive bool   // destructiveHint
	Schema      bool   // it has an outputSchema
}

// Claims returns the claims of a tool by the name that clients know; false: no tool of that
// name was approved.
func (g *Guard) Claims(tool string) (c Claims, known bool) {
	r := g.record
	item, have, ok := r.approvedAs(Tools, tool)
	if !ok {
		return c, false
	}
	raw := r.definitions()[item]
	if raw == nil || digestOf(raw) != have {
		return c, false
	}
	hint := func(name string) bool { return string(rawjson.GetPath(raw, "annotations", name)) == "true" }
	return Claims{Definition: have.String(), ReadOnly: hint("readOnlyHint"), Destructive: hint("destructiveHint"),
		Schema: rawjson.Get(raw, "outputSchema") != nil}, true
}

// approvedAs finds the approved item of a name that clients know, which is the server's own
// name without hidden characters.
func (r *record) approvedAs(k Kind, shown string) (item string, d digest, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok = r.approved[k.key(shown)]; ok || r.fault != nil {
		return k.key(shown), d, ok && r.fault == nil
	}
	for item, d := range r.approved {
		own, named := strings.CutPrefix(item, k.key(""))
		if clean, n := plaintext.Clean(own); named && n > 0 && clean == shown {
			return item, d, true
		}
	}
	return "", d, false
}
