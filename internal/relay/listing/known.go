package listing

import (
	"bytes"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	// ShelfBytes is the size of the largest list that is kept.
	ShelfBytes = 1 << 20
	// ShelvesOfConn is how many lists of one connection are kept.
	ShelvesOfConn = 16
)

// Known is a kept list. It is not changed.
type Known struct {
	Changes, Epoch uint64
	Until          time.Time // zero: until the server reports a change
	text           []byte    // a JSON array in the aggregate's names
	names          []string  // the server's own, in the order of the entries
	ends           []int     // where each entry ends in text
}

// Reported are the capabilities of servers that report changes of a list. Nothing
// reports those of templates and of skills for certain.
var Reported = map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}

// Shelve puts the entries that some caller may use into the aggregate's names. older: for
// a client of an earlier era than the server's. mirrors: tools with invalid header
// annotations are left out.
func Shelve(server string, kind Kind, result []byte, older, mirrors bool) *Known {
	out := &Known{text: []byte{'['}}
	for entry := range wire.Elements(wire.Get(result, kind.Member)) {
		name, ok := wire.GetString(entry, kind.Name)
		if !ok || mirrors && kind.Member == "tools" && paramheader.Of(entry).Broken {
			continue
		}
		if older && kind.Member == "tools" {
			entry = legacyTool(entry)
		}
		out.text = append(rawjson.AppendComma(out.text), PrefixedEntry(server, kind, entry)...)
		out.names, out.ends = append(out.names, name), append(out.ends, len(out.text))
	}
	out.text = append(out.text, ']')
	return out
}

// Shown is what a caller may use of the list, as a JSON array. The caller
// does not change it.
func (s *Known) Shown(g *gate.Gate, q policy.Request) []byte {
	out, whole, from := []byte(nil), true, 1
	for i, name := range s.names {
		q.Name = name
		allowed := g.Allows(q).Allow
		if whole && !allowed {
			whole = false
			out = append(make([]byte, 0, len(s.text)), bytes.TrimSuffix(s.text[:from], []byte{','})...)
		}
		if !whole && allowed {
			out = append(rawjson.AppendComma(out), s.text[from:s.ends[i]]...)
		}
		from = s.ends[i] + 1
	}
	if whole {
		return s.text
	}
	return append(out, ']')
}

// perRequest are the members of _meta that say nothing of what is asked.
var perRequest = []rawjson.Edit{{Key: "progressToken"}, {Key: "traceparent"}, {Key: "tracestate"}, {Key: "baggage"}}

// ShelfKey is for whom a list was asked, and how: no caller gets what another has
// asked for, also on a connection that they share.
func ShelfKey(x *front.Exchange, method string, params []byte) string {
	if wire.Get(params, "_meta") != nil {
		params = rawjson.SetIn(params, "_meta", perRequest...)
	}
	return method + "\x00" + string('0'+rune(x.Era)) + x.Who.Key() + "\x00" + string(params)
}
