package listing

import (
	"bytes"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

const (
	// ShelfBytes is the size of the largest list that is kept.
	ShelfBytes = 1 << 20
	// ShelvesOfConn bounds the lists that one connection keeps.
	ShelvesOfConn = 16
)

// Known is a kept list. It is immutable.
type Known struct {
	Changes, Epoch uint64
	Until          time.Time // zero: until the server reports a change
	text           []byte    // a JSON array in the aggregate's names
	names          []string  // the server's own, in the order of the entries
	ends           []int     // where each entry ends in text
}

// Reported maps list methods to the capability under which a server declares that it reports
// changes. No capability covers the changes of templates and skills reliably.
var Reported = map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}

// Shelve makes the kept list: all entries, with the aggregate's names. legacy: it is for
// clients of the legacy era. mirrors: tools with invalid header annotations are left out.
func Shelve(server string, kind Kind, result []byte, legacy, mirrors bool) *Known {
	out := &Known{text: []byte{'['}}
	for entry := range rawjson.Elements(rawjson.Get(result, kind.Member)) {
		name, ok := rawjson.GetString(entry, kind.Name)
		if !ok || mirrors && kind.Member == "tools" && paramheader.Of(entry).Broken {
			continue
		}
		if legacy && kind.Member == "tools" {
			entry = legacyTool(entry)
		}
		out.text = append(rawjson.AppendComma(out.text), PrefixedEntry(server, kind, entry)...)
		out.names, out.ends = append(out.names, name), append(out.ends, len(out.text))
	}
	out.text = append(out.text, ']')
	return out
}

// Shown returns the part of the list that a caller may use, as a JSON array. The result must
// not be changed.
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

// perRequest removes the members of _meta that do not influence the answer.
var perRequest = []rawjson.Edit{{Key: "progressToken"}, {Key: "traceparent"}, {Key: "tracestate"}, {Key: "baggage"}}

// ShelfKey returns the key of a kept list: the caller and the request. No caller gets a list
// that was made for another one, even on a connection that they share.
func ShelfKey(x *front.Exchange, method string, params []byte) string {
	if rawjson.Get(params, "_meta") != nil {
		params = rawjson.SetIn(params, "_meta", perRequest...)
	}
	return method + "\x00" + string('0'+rune(x.Era)) + x.Who.Key() + "\x00" + string(params)
}
