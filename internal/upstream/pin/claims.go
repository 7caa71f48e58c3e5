package pin

import "github.com/doorward/doorward/internal/trust/wire"

// Claims are what an approved tool says of itself, which the server made up.
type Claims struct {
	Definition  string // digest of the definition
	ReadOnly    bool   // readOnlyHint
	Destructive bool   // destructiveHint
	Schema      bool   // it has an outputSchema
}

// Claims returns what is known of a tool by the server's own name; false when nothing
// of that name was approved.
func (g *Guard) Claims(tool string) (c Claims, known bool) {
	item := Tools.key(tool)
	r := g.record
	r.mu.Lock()
	have, ok := r.approved[item]
	fault := r.fault
	r.mu.Unlock()
	if !ok || fault != nil {
		return c, false
	}
	raw := r.definitions()[item]
	if raw == nil || digestOf(raw) != have {
		return c, false
	}
	hint := func(name string) bool { return string(wire.GetPath(raw, "annotations", name)) == "true" }
	return Claims{Definition: have.String(), ReadOnly: hint("readOnlyHint"), Destructive: hint("destructiveHint"),
		Schema: wire.Get(raw, "outputSchema") != nil}, true
}
