package relay

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// seen describes an answer as its caller sees it, apart from the time.
func seen(r *reply) string {
	head := maps.Clone(r.header)
	delete(head, "Date")
	var out []string
	for _, key := range slices.Sorted(maps.Keys(head)) {
		out = append(out, key+": "+strings.Join(head[key], ","))
	}
	out = append(out, http.StatusText(r.status))
	for {
		select {
		case m, ok := <-r.msgs:
			if !ok {
				return strings.Join(out, "\n")
			}
			out = append(out, m)
			if strings.Contains(m, "subscriptions/acknowledged") {
				r.stop()
			}
		case <-time.After(10 * time.Second):
			r.t.Errorf("no answer: %q", out)
			r.stop()
			return strings.Join(out, "\n")
		}
	}
}

// A caller cannot tell a server that it is denied from one that does not exist: the answers to
// any request are equal in status, headers and bytes, on the aggregate and on the server's own
// route, with the id of a session there or another, and the server is not asked.
func TestADeniedServerLooksLikeNone(t *testing.T) {
	t.Parallel()
	const denied, none = "far", "fog" // of one length
	for what, c := range map[string]struct{ who, rules string }{
		"by scope":          {"token:bob server:text", ""},
		"by a rule":         {"token:bob", `forbid (principal == Principal::"token:bob", action, resource in Server::"far");`},
		"by its name":       {"token:bob", `forbid (principal == Principal::"token:bob", action, resource) when { resource.server == "far" };`},
		"by the handshake":  {"token:bob", `forbid (principal == Principal::"token:bob", action in Action::"handshake", resource == Server::"far");`},
		"by an observation": {"token:bob", `forbid (principal == Principal::"token:bob", action, resource in Server::"far") unless { principal.exe == "/x" };`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			text, far := web(t, "text", "both"), web(t, denied, "both")
			h := build(t, []Server{text.server(), far.server()})
			owner := h.legacy("/mcp/"+denied, "uid:1000", `{}`)
			owner.call("tools/list", `{}`)
			stream := owner.listen()
			defer stream.stop()
			if c.rules != "" {
				h.obey(c.rules)
			}
			c1 := h.legacy("/mcp", c.who, `{}`)
			asked := len(far.taken())
			made := attempts{seeded(t)}
			n := 0
			for range 400 {
				m := made.one()
				place := strings.NewReplacer("text", denied, "notes", denied, "ghost", denied, "TEXT", "FAR", "Text", "Far")
				m.params = place.Replace(m.params)
				if !strings.Contains(strings.ToLower(m.params), denied) {
					m.params = `{"name":"` + denied + `__x"}`
				}
				id := ""
				if m.id {
					id = `"id":7,`
				}
				route := pick(made, "/mcp", "/mcp", "/mcp/"+denied, "/mcp/"+denied, "/sse/"+denied, "/mcp/"+denied+"/", "/mcp//"+denied, "/MCP/"+denied, "/mcp/%66ar")
				verb := pick(made, "POST", "POST", "POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "PUT", "HEAD")
				var header []string
				params := m.params
				switch made.IntN(4) {
				case 0:
					meta := []rawjson.Edit{{Key: "io.modelcontextprotocol/protocolVersion", Value: []byte(`"` + protocol.V20260728 + `"`)}, {Key: "io.modelcontextprotocol/clientCapabilities", Value: []byte(`{}`)}}
					params = string(rawjson.SetIn([]byte(params), "_meta", meta...))
					header = []string{"Mcp-Protocol-Version", protocol.V20260728, "Mcp-Method", strings.TrimSpace(m.method)}
					if member := protocol.NameMember(m.method); member != "" {
						name, _ := rawjson.GetString([]byte(params), member)
						header = append(header, "Mcp-Name", protocol.EncodeHeader(name))
					}
				case 1:
					header = []string{"Mcp-Session-Id", owner.id, "Mcp-Protocol-Version", protocol.V20251125}
				case 2:
					header = []string{"Mcp-Session-Id", c1.id, "Mcp-Protocol-Version", protocol.V20251125}
				case 3:
					m.method, params = "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"`+denied+`","version":"1"}}`
				}
				if route == "/mcp" && (m.method == "initialize" || verb != "POST") {
					continue // it opens, hears or ends a session of the aggregate
				}
				body := `{"jsonrpc":"2.0",` + id + `"method":` + string(rawjson.AppendQuote(nil, m.method)) + `,"params":` + params + `}`
				as := strings.NewReplacer(denied, none, "FAR", "FOG", "Far", "Fog", "%66ar", "%66og", "\uff44", "\uff44")
				other := append([]string(nil), header...)
				for i := 1; i < len(other); i += 2 {
					if !strings.HasPrefix(other[i-1], "Mcp-Session") {
						other[i] = as.Replace(other[i])
					}
				}
				if name := len(other) - 2; name >= 0 && other[name] == "Mcp-Name" {
					of, _ := rawjson.GetString([]byte(as.Replace(params)), protocol.NameMember(m.method))
					other[name+1] = protocol.EncodeHeader(of)
				}
				got := seen(h.send(verb, route, c.who, body, header...))
				want := seen(h.send(verb, as.Replace(route), c.who, as.Replace(body), other...))
				if as.Replace(got) != want {
					t.Errorf("%s %s %q %s\n got %s\nwant %s", verb, route, header, body, got, want)
				}
				n++
			}
			if n < 300 {
				t.Errorf("%d requests", n)
			}
			for _, q := range far.taken()[asked:] {
				t.Errorf("the denied server got %s", q.raw)
			}
		})
	}
}
