package relay

import (
	"fmt"
	"runtime"
	"testing"
	"weak"
)

// Nothing of a server is kept after a reload has removed or replaced it, and none of its
// connections and lists, whoever has used it.
func TestARemovedServerIsKeptNowhere(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		for name, use := range map[string]func(*house){
			"a modern client": func(h *house) {
				for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
					h.modern("/mcp/s", "uid:1000").call(method, `{}`)
				}
			},
			"a session that has ended": func(h *house) {
				c := h.legacy("/mcp/s", "uid:1000", `{}`)
				c.call("tools/list", `{}`)
				c.end()
			},
			"a session": func(h *house) {
				h.legacy("/mcp", "uid:1000", `{}`).call("tools/list", `{}`)
			},
			"a session that is subscribed": func(h *house) {
				h.legacy("/mcp/s", "uid:1000", `{}`).call("resources/subscribe", `{"uri":"file:///a"}`)
			},
			"a session that listens": func(h *house) {
				c := h.legacy("/mcp/s", "uid:1000", `{}`)
				c.call("tools/list", `{}`)
				c.listen()
				eventually(h.t, "it listens", h.sessionOf(c).Listening)
			},
		} {
			for what, next := range map[string]int{"removed": 0, "replaced": 1} {
				t.Run(fmt.Sprint(what, " ", era, " ", name), func(t *testing.T) {
					t.Parallel()
					h := build(t, []Server{stdio(t, "s", era).server()})
					use(h)
					server, conn := h.weakly("s")
					h.reload([]Server{stdio(t, "s", era).server()}[:next]...)
					eventually(t, "nothing is kept", func() bool { runtime.GC(); return conn.Value() == nil && server.Value() == nil })
				})
			}
		}
	}
}

// The relay keeps what the last removedMost removed servers declared, and nothing of those before them.
func TestWhatRemovedServersDeclaredIsBounded(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy").server()
	h := build(t, nil)
	name := func(i int) string { return fmt.Sprint("s", i) }
	const all = removedMost + 10
	for i := range all {
		s.Name = name(i)
		h.relay.SetServers([]Server{s})
		h.relay.table.Load().byName[s.Name].greeted.Store(&liveConn{hello: []byte(s.Name)})
	}
	h.relay.SetServers(nil)
	now := h.relay.table.Load()
	equal(t, "kept", fmt.Sprint(len(now.removed)), fmt.Sprint(removedMost))
	for i := range all {
		equal(t, name(i)+" is kept", fmt.Sprint(now.said(name(i)) != nil), fmt.Sprint(i >= all-removedMost))
	}
	s.Name = name(all - 1)
	h.relay.SetServers([]Server{s})
	equal(t, "it is back", string(h.relay.table.Load().said(s.Name).hello), s.Name)
}

// weakly returns a configured server and its last connection without keeping them.
func (h *house) weakly(name string) (weak.Pointer[backend], weak.Pointer[liveConn]) {
	b := h.relay.table.Load().byName[name]
	return weak.Make(b), weak.Make(b.greeted.Load())
}
