package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// A legacy server is told the clientInfo of a modern client where the connection is
// kept for clients that declare the same; clients of another principal never share it.
func TestALegacyServerIsToldTheClientInfo(t *testing.T) {
	t.Parallel()
	const long = maxInfo + 1
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.serve = func(q *query) { q.result(`{"n":%d}`, q.n) }
			h := build(t, []Server{s.server()})
			remote := kind != "stdio"
			seen := make(map[string]string) // connection by what is declared
			for _, who := range []string{"uid:1000", "token:bob"} {
				for _, caps := range []string{`{}`, elicits} {
					for _, name := range []string{"one", "two", strings.Repeat("x", long)} {
						for range 2 {
							m := h.modern("/mcp/s", who)
							m.caps = caps
							m.meta = []rawjson.Edit{{Key: wire.MetaClientInfo, Value: fmt.Appendf(nil, `{"name":%q, "version":"1"}`, name)}}
							n := field(m.tool("t", ""), "result", "n")
							want := "doorward"
							if (remote || caps == elicits) && len(name) < long {
								want = name
							}
							equal(t, "the server knows", told(s, n), want)
							key := who + caps + want
							if seen[key] == "" {
								seen[key] = n
							}
							equal(t, "connection of "+key, n, seen[key])
						}
					}
				}
			}
			used := make(map[string]bool)
			for _, n := range seen {
				used[n] = true
			}
			equal(t, "each declaration has its own connection", fmt.Sprint(len(used)), fmt.Sprint(len(seen)))
		})
	}
}

// told is the client's name in the handshake of the n-th connection.
func told(s *script, n string) string {
	for _, q := range s.got("initialize") {
		if fmt.Sprint(q.n) == n {
			return text(q.raw, "params", "clientInfo", "name")
		}
	}
	return "no handshake on connection " + n
}

// A client that names itself anew with each request does not open connections
// without end.
func TestNamesOfOneClientOpenFewConnections(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.serve = func(q *query) { q.result(`{}`) }
	h := build(t, []Server{s.server()})
	for i := range 3 * maxPooled {
		m := h.modern("/mcp/s", "uid:1000")
		m.meta = []rawjson.Edit{{Key: wire.MetaClientInfo, Value: fmt.Appendf(nil, `{"name":"n%d","version":"1"}`, i)}}
		if end := m.tool("t", ""); field(end, "result") == "" {
			t.Fatalf("call %d: %s", i, end)
		}
	}
	if n := len(s.got("initialize")); n > maxPooled+2 {
		t.Errorf("%d connections for %d names", n, 3*maxPooled)
	}
}
