package relay

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/policy"
)

// filterList removes the entries that this principal may not use: the same rule decides the
// list and the call. A list that loses nothing keeps its bytes, apart from a public
// cacheScope in an answer to a modern client.
func (tr *translation) filterList(x *front.Exchange, l *link, c *liveConn, method string, result []byte) []byte {
	kind, _ := listing.Of(method)
	entries := rawjson.Get(result, kind.Member)
	if method == "tools/list" && (x.Era == front.Modern || c.era == front.Modern) {
		l.b.params.Learn(l.b.params.Now(), entries, false)
	}
	var edits []rawjson.Edit
	if kept, changed := tr.keep(x, l.b, kind, entries, l.mirrors(c)); changed {
		edits = append(edits, rawjson.Edit{Key: kind.Member, Value: kept})
	}
	if x.Era == front.Modern && rawjson.IsText(rawjson.Get(result, "cacheScope"), "public") { // policy may show others fewer entries
		edits = append(edits, rawjson.Edit{Key: "cacheScope", Value: []byte(`"private"`)})
	}
	if next := listing.Next(result); next != nil && l.seals(c) {
		sealed, err := tr.seal.SealCursor(next, x.Who, l.b.Name, method)
		if err != nil {
			tr.log.Error("sealing a cursor", "err", err)
		}
		edits = append(edits, rawjson.Edit{Key: "nextCursor", Value: sealed}) // on an error it is removed, not sent unsealed
	}
	if edits == nil {
		return result
	}
	return rawjson.Set(result, edits...)
}

// seals reports whether cursors of this connection are bound to their principal. On a private
// legacy connection the server itself binds them.
func (l *link) seals(c *liveConn) bool { return !l.private() || c.era == front.Modern }

// mirrors reports whether Doorward is the HTTP client of a modern server, which repeats
// parameters in headers.
func (l *link) mirrors(c *liveConn) bool {
	return c.era == front.Modern && l.b.Kind != "stdio" && l.b.Builtin == nil
}

// keep drops entries that the principal may not use with any arguments, and tools with
// invalid header annotations where Doorward is the HTTP client.
func (tr *translation) keep(x *front.Exchange, b *backend, kind listing.Kind, entries []byte, checkHeaders bool) ([]byte, bool) {
	q := policy.Request{Who: x.Who, Action: kind.Action, Server: b.Name, SameProgram: x.SameProgram, Listing: true}
	out := []byte{'['}
	changed := false
	for entry := range rawjson.Elements(entries) {
		name, ok := rawjson.GetString(entry, kind.Name)
		q.Name = name
		if !ok || !tr.gate.Allows(q).Allow ||
			checkHeaders && kind.Member == "tools" && paramheader.Of(entry).Broken {
			changed = true
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, entry...)
	}
	if !changed {
		return nil, false
	}
	return append(out, ']'), true
}
