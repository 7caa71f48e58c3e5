package relay

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// marker is a guide that looks for one mark as the daemon does.
type marker struct {
	unguided
	mode  watermark.Mode
	index *watermark.Index
	found atomic.Int64
}

func (m *marker) Outgoing(_ gate.Act, params []byte) ([]byte, bool) {
	r := m.index.Look(m.mode, params)
	m.found.Add(int64(len(r.Found)))
	return r.Out, r.Blocked
}

// newMarker makes a guide and the mark that it looks for.
func newMarker(mode watermark.Mode) (*marker, string) {
	d := watermark.Delivery{Session: "s", Template: "t", Revision: "r"}
	m := &marker{mode: mode, index: watermark.NewIndex(8)}
	mark := watermark.Ref([]byte("key"), d)
	m.index.Add(mark, d, time.Now())
	return m, mark
}

// holds reports whether a text has the mark in it, in any way in which marks are looked
// for.
func (m *marker) holds(text string) bool {
	_, found := m.index.Text(watermark.Alert, text)
	return found != nil || m.index.Look(watermark.Alert, []byte(text)).Found != nil
}

// heard returns what a server was sent with the mark in it: a body, a header or the name
// of a header.
func (m *marker) heard(s *script) (got []string) {
	for _, q := range s.taken() {
		places := []string{q.raw}
		for name, values := range q.header {
			for _, v := range values {
				if plain, err := protocol.DecodeHeader(v); err == nil {
					v += " " + plain
				}
				places = append(places, name+": "+v)
			}
		}
		if at := slices.IndexFunc(places, m.holds); at >= 0 {
			got = append(got, places[at])
		}
	}
	return got
}

// disguises are ways in which a mark is written.
var disguises = map[string]func(string) string{
	"plain":     func(s string) string { return s },
	"in a text": func(s string) string { return "so: " + strings.ToUpper(s) + "!" },
	"spaced":    func(s string) string { return strings.Join(strings.Split(s, ""), " \u200b") },
	"base64":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
	"hex":       func(s string) string { return hex.EncodeToString([]byte(s)) },
	"wide": func(s string) string {
		return strings.Map(func(r rune) rune {
			if r > ' ' {
				r += 0xFEE0
			}
			return r
		}, s)
	},
}

// outlets are requests with a mark in different places. %M stands for the mark, as a JSON
// string without its quotes, %N for the name of a tool or prompt, and %U for the prefix of
// a URI on the route.
var outlets = []struct{ method, params string }{
	{"tools/call", `{"name":"%N","arguments":{"a":"%M"}}`},
	{"tools/call", `{"name":"%N","arguments":{"%M":1}}`},
	{"tools/call", `{"name":"%N","arguments":{"a":[[{"b":["x","%M"]}]]}}`},
	{"tools/call", `{"name":"%N%M","arguments":{}}`},
	{"tools/call", `{"name":"%N","%M":1}`},
	{"tools/call", `{"name":"%N","_meta":{"x.example/a":{"b":"%M"}}}`},
	{"tools/call", `{"name":"%N","_meta":{"x.example/%M":1}}`},
	{"tools/call", `{"name":"%N","_meta":{"progressToken":"%M"}}`},
	{"tools/call", `{"name":"%N","_meta":{"traceparent":"%M","tracestate":"a=%M","baggage":"%M"}}`},
	{"tools/call", `{"name":"%N","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"%M","version":"1"}}}`},
	{"tools/call", `{"name":"%N","_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x.example/a":{"b":"%M"}}}}}`},
	{"tools/list", `{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"t","version":"%M"}}}`},
	{"tools/list", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x.example/a":{"b":"%M"}}}}}`},
	{"server/discover", `{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"t","version":"%M"}}}`},
	{"server/discover", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x.example/a":{"b":"%M"}}}}}`},
	{"vendor/list", `{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"t","version":"%M"}}}`},
	{"vendor/list", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x.example/a":{"b":"%M"}}}}}`},
	{"subscriptions/listen", `{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"t","version":"%M"}}}`},
	{"subscriptions/listen", `{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x.example/a":{"b":"%M"}}}}}`},
	{"tools/call", `{"name":"%N","task":{"ttl":1,"x":"%M"}}`},
	{"tools/call", `{"name":"%N","inputResponses":{"k":{"action":"accept","content":{"a":"%M"}}}}`},
	{"tools/call", `{"name":"%N","inputResponses":{"%M":{"action":"accept"}}}`},
	{"prompts/get", `{"name":"%N","arguments":{"a":"%M"}}`},
	{"prompts/get", `{"name":"%N%M"}`},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"%N"},"argument":{"name":"a","value":"%M"},"context":{"arguments":{"b":"%M"}}}`},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"%N","title":"%M"},"argument":{"name":"%M","value":""}}`},
	{"resources/read", `{"uri":"%Ufile:///%M"}`},
	{"resources/read", `{"uri":"%Ux://h/?q=%M#%M"}`},
	{"resources/subscribe", `{"uri":"%Ufile:///%M"}`},
	{"resources/unsubscribe", `{"uri":"%Ufile:///%M"}`},
	{"logging/setLevel", `{"level":"info","x":"%M"}`},
	{"tools/list", `{"cursor":"%M"}`},
	{"tools/list", `{"_meta":{"x.example/a":"%M"}}`},
	{"tasks/get", `{"taskId":"%M"}`},
	{"vendor/run", `{"name":"%N","deep":[{"%M":"%M"}]}`},
	{"vendor/%M", `{"name":"%N"}`},
	{"vendor/list", `{"filter":"%M"}`},
	{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["%Ufile:///%M"]}}`},
	{"subscriptions/listen", `{"notifications":{"toolsListChanged":true,"x.example/a":{"b":"%M"}}}`},
	{"ping", `{"x":"%M"}`},
	{"notifications/vendor", `{"name":"%N","a":"%M"}`},
	{"notifications/vendor", `{"name":"%N","%M":1}`},
	{"notifications/%M", `{"name":"%N"}`},
	{"notifications/cancelled", `{"requestId":1,"reason":"%M"}`},
	{"notifications/progress", `{"progressToken":"%M","progress":1,"message":"%M"}`},
	{"notifications/roots/list_changed", `{"x":"%M"}`},
	{"notifications/initialized", `{"x":"%M"}`},
}

// A mark is found wherever it stands in a message of a client, on every transport: it is
// counted, cut or held back. With the last two modes no server gets it.
func TestNoMarkLeavesUnseen(t *testing.T) {
	t.Parallel()
	for _, mode := range []watermark.Mode{watermark.Alert, watermark.Redact, watermark.Block} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			for _, era := range []string{"legacy", "modern"} {
				everyCaller(t, "s", func(t *testing.T, route, _ string, open func(*house, string) caller) {
					g, mark := newMarker(mode)
					s, late := web(t, "s", era), stdio(t, "late", era)
					h := build(t, []Server{s.server(), late.server()}, func(_ *house, o *Options) { o.Guide = g })
					c := open(h, `{"roots":{"listChanged":true}}`)
					name, uri := "t", ""
					if route == "" {
						name, uri = "s__t", "doorward://s/"
					}
					for _, o := range outlets {
						for _, how := range []string{"plain", pick(attempts{seeded(t)}, "in a text", "spaced", "base64", "hex", "wide")} {
							written := string(rawjson.AppendQuote(nil, disguises[how](mark)))
							fill := strings.NewReplacer("%N", name, "%U", uri, "%M", written[1:len(written)-1])
							before := len(g.heard(s))
							c.say(strings.NewReplacer("%M", disguises[how](mark)).Replace(o.method), fill.Replace(o.params), !strings.HasPrefix(o.method, "notifications/"))
							left := g.heard(s)[before:]
							if mode != watermark.Alert && len(left) > 0 {
								t.Errorf("%s %s, %s: the server got %s", o.method, o.params, how, left)
							}
						}
					}
					if route == "" { // what the session has set up comes to a server that is reached later
						c.say("tools/call", `{"name":"late__t"}`, true)
					}
					h.flush()
					all := append(g.heard(s), g.heard(late)...)
					if mode != watermark.Alert && len(all) > 0 {
						t.Errorf("servers got %s", all)
					}
					if n := g.found.Load(); n < int64(len(outlets)/2) || n < int64(len(all)) {
						t.Errorf("%d were found, %d were sent", n, len(all))
					}
				})
			}
		})
	}
}

// No server gets a mark in a header or in a client's answer to a question, whatever the
// answer is and wherever the mark stands in it.
func TestNoMarkLeavesInAnswersAndHeaders(t *testing.T) {
	t.Parallel()
	for _, mode := range []watermark.Mode{watermark.Redact, watermark.Block} {
		for _, how := range []string{"plain", "in a text", "spaced", "base64", "hex", "wide"} {
			t.Run(string(mode)+" "+how, func(t *testing.T) {
				t.Parallel()
				g, ref := newMarker(mode)
				mark := string(rawjson.AppendQuote(nil, disguises[how](ref)))
				mark = mark[1 : len(mark)-1]
				s, far := asking(t, stdio), web(t, "far", "modern")
				h := build(t, []Server{s.server(), far.server()}, withRules("quiz", everyTool, askAll), func(_ *house, o *Options) { o.Guide = g })
				c := h.legacy("/mcp", "uid:1000", everyCapability)
				for _, method := range []string{policy.AskElicitation, policy.AskSampling, policy.AskRoots, "future/ask"} {
					for _, answer := range []string{
						`"result":{"action":"accept","content":{"n":"%M"}}`, `"result":{"action":"accept","content":{"%M":1}}`, `"result":{"%M":1}`, `"result":{"_meta":{"a":["%M"]}}`,
						`"result":{"role":"assistant","content":{"type":"text","text":"%M"},"model":"%M"}`, `"result":{"roots":[{"uri":"file:///%M","name":"%M"}]}`,
						`"error":{"code":-1,"message":"%M"}`, `"error":{"code":-1,"message":"m","data":{"a":"%M"}}`, `"error":{"code":-1,"message":"m","data":{"%M":0}}`, `"error":{"code":-1,"message":"m","%M":0}`,
					} {
						r := c.begin("tools/call", `{"name":"quiz__t","arguments":{"method":"`+method+`","params":{"message":"m"}}}`)
						q := r.nextOf(method)
						c.post(`{"jsonrpc":"2.0","id":` + field(q, "id") + `,` + strings.ReplaceAll(answer, "%M", mark) + `}`)
						r.end()
					}
				}
				m := h.modern("/mcp", "uid:1000")
				m.caps = everyCapability
				for _, method := range []string{policy.AskElicitation, policy.AskSampling} {
					params := `"name":"quiz__t","arguments":{"method":"` + method + `","params":{"message":"m"}}`
					first := m.call("tools/call", `{`+params+`}`)
					m.call("tools/call", back(params, first, fmt.Sprintf(`{"quiz-%d":{"action":"accept","content":{"a":"%s"}},"%s":{}}`, 1, mark, mark)))
					m.call("tools/call", back(params, first, strings.ReplaceAll(responses(first, 1), `"accept"`, `"`+mark+`"`)))
				}
				plain := disguises[how](ref)
				for name, value := range map[string]string{"Mcp-Param-A": protocol.EncodeHeader(plain), "Mcp-Param-" + url.PathEscape(ref): "x", "Traceparent": protocol.EncodeHeader(plain), "Tracestate": "a=" + url.QueryEscape(ref), "Baggage": ref, "User-Agent": ref, "X-Custom": ref, "Cookie": "a=" + ref, "Last-Event-Id": ref, "Doorward-Namespace": ref} {
					m.tool("far__t", "", name, value)
				}
				h.flush()
				for _, got := range append(g.heard(s), g.heard(far)...) {
					t.Errorf("a server got %s", got)
				}
				if len(s.got("")) < 20 || g.found.Load() < 40 { // else nothing was tried
					t.Errorf("%d answers reached the server, %d marks were found", len(s.got("")), g.found.Load())
				}
			})
		}
	}
}

// A mark that is split over two calls is not noticed: an admitted limit. A whole mark is
// noticed after them.
func TestAMarkInTwoHalvesIsAnAdmittedLimit(t *testing.T) {
	t.Parallel()
	g, mark := newMarker(watermark.Block)
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server()}, func(_ *house, o *Options) { o.Guide = g })
	m := h.modern("/mcp/s", "uid:1000")
	equal(t, "first half", code(m.tool("t", `"a":"`+mark[:10]+`"`)), "")
	equal(t, "second half", code(m.tool("t", `"a":"`+mark[10:]+`"`)), "")
	equal(t, "whole", code(m.tool("t", `"a":"`+mark+`"`)), "1403")
}
