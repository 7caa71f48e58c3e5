package relay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
)

// listed is what a caller is shown, and whether the server was asked for it.
func listed(s *script, call func(method, params string) string) (shown string, asked bool) {
	before := len(s.got("tools/list"))
	shown = join(names(call("tools/list", ""), "tools", "name"))
	return shown, len(s.got("tools/list")) > before
}

// The list of a stdio server is requested again only after a change. A list that is
// answered without asking has one record of its decision.
func TestKnownListIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	a, b := stdio(t, "alpha", "legacy"), stdio(t, "beta", "legacy")
	h := build(t, []Server{a.server(), b.server()})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	stream := c.listen()
	first := c.call("tools/list", "")
	equal(t, "again", field(c.call("tools/list", ""), "result"), field(first, "result"))
	if n := len(a.got("tools/list")) + len(b.got("tools/list")); n != 2 {
		t.Errorf("the servers were asked %d times", n)
	}
	d := h.decided("tools/list", "")
	if d.Count != 2 || d.Detail["servers"] != "alpha beta" || h.outcome(d) != "ok" {
		t.Errorf("the record: %+v", d)
	}
	equal(t, "decisions about one server, and about both", fmt.Sprint(h.count("tools/list", "alpha"), h.count("tools/list", "beta"), h.count("tools/list", "")), "1 1 1")
	a.setList("tools/list", `{"tools":[{"name":"new"}]}`)
	a.change(protocol.ToolsChanged, `{}`)
	stream.nextOf(protocol.ToolsChanged)
	equal(t, "after a change", join(names(c.call("tools/list", ""), "tools", "name")), "alpha__new beta__echo")
	equal(t, "the one that did not change", fmt.Sprint(len(b.got("tools/list"))), "1")
}

// A list that may change without a notification is requested again: from a server
// without listChanged, in pages, without a time to live, or of a legacy server over
// HTTP.
func TestListThatMayChangeUnheardIsAskedForAgain(t *testing.T) {
	t.Parallel()
	silent := stdio(t, "silent", "legacy")
	silent.caps = `{"tools":{}}`
	pages := stdio(t, "pages", "legacy")
	pages.setList("tools/list", `{"tools":[{"name":"echo"}],"nextCursor":"x"}`)
	stale := web(t, "stale", "modern")
	stale.setList("tools/list", `{"tools":[{"name":"echo"}],"ttlMs":0}`)
	kept := web(t, "kept", "modern")
	kept.setList("tools/list", `{"tools":[{"name":"echo"}],"ttlMs":60000}`)
	for s, want := range map[*script]bool{silent: true, pages: true, stale: true, kept: false, web(t, "far", "legacy"): true} {
		h := build(t, []Server{s.server()})
		for era, call := range map[string]func(string, string) string{"legacy": h.legacy("/mcp", "uid:1000", `{}`).call, "modern": h.modern("/mcp", "uid:1000").with} {
			listed(s, call)
			if _, asked := listed(s, call); asked != want {
				t.Errorf("%s, %s: asked again: %v", s.name, era, asked)
			}
		}
	}
}

// On a connection that callers share, each caller gets the list that was requested for
// it, never the list of another.
func TestKnownListIsOfOneCaller(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.setList("tools/list", "")
	var asked atomic.Int32
	s.serve = func(q *query) { q.result(`{"tools":[{"name":"for_%d"}]}`, asked.Add(1)) }
	h := build(t, []Server{s.server(instances("shared"))})
	a, b := h.legacy("/mcp", "uid:1000", `{}`), h.legacy("/mcp", "token:bob", `{}`)
	for range 3 {
		equal(t, "the first", join(names(a.call("tools/list", ""), "tools", "name")), "s__for_1")
		equal(t, "the second", join(names(b.call("tools/list", ""), "tools", "name")), "s__for_2")
	}
	equal(t, "connections", fmt.Sprint(s.connected()), "1")
}

// with is call with params that may be left out.
func (m *modern) with(method, params string) string {
	if params == "" {
		params = `{}`
	}
	return m.call(method, params)
}

// Each caller gets what its servers offer at that moment and its policy allows, as
// from a relay that requests every list, whatever happened between two lists.
func TestKnownListsEqualAskedOnes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Server, *upstream.Definition){"auto": instances("auto"), "shared": instances("shared"), "session": instances("session")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []*script{stdio(t, "alpha", "legacy"), stdio(t, "beta", "legacy")}
			h := build(t, []Server{all[0].server(change), all[1].server(change)})
			w := &world{h: h, all: all, rand: seeded(t), offers: map[string][]string{"alpha": {"echo"}, "beta": {"echo"}}, forbids: make(map[string]bool)}
			for _, who := range []string{"uid:1000", "token:bob"} {
				c := h.legacy("/mcp", who, `{}`)
				w.callers = append(w.callers, viewer{who, c.call, c.listen()}, viewer{who, h.modern("/mcp", who).with, nil})
			}
			for range 120 {
				w.step(t)
			}
		})
	}
}

// viewer is one caller, with the stream on which it hears of changes, if it has one.
type viewer struct {
	who    string
	call   func(method, params string) string
	stream *reply
}

// world is what servers offer and callers may use.
type world struct {
	h       *house
	all     []*script
	rand    *rand.Rand
	offers  map[string][]string
	forbids map[string]bool // principal and tool
	callers []viewer
	made    int
}

func (w *world) step(t *testing.T) {
	s := w.all[w.rand.IntN(len(w.all))]
	switch w.rand.IntN(8) {
	case 0, 1:
		w.change(t, s)
	case 2:
		w.forbid()
	case 3:
		w.respawn(t, s)
	default:
		v := w.callers[w.rand.IntN(len(w.callers))]
		equal(t, v.who, join(names(v.call("tools/list", ""), "tools", "name")), w.expected(v.who))
	}
}

// change has a server offer something else and say so, and waits until Doorward has
// heard it on every connection.
func (w *world) change(t *testing.T, s *script) {
	w.made++
	w.offers[s.name] = append([]string{"echo"}, fmt.Sprintf("tool_%d", w.made), fmt.Sprintf("other_%d", w.rand.IntN(3)))
	var tools []string
	for _, name := range w.offers[s.name] {
		tools = append(tools, `{"name":"`+name+`"}`)
	}
	s.setList("tools/list", `{"tools":[`+strings.Join(tools, ",")+`]}`)
	before := w.heard(s)
	for _, c := range s.open() {
		c.tell(protocol.ToolsChanged, `{}`)
	}
	eventually(t, "every connection has heard it", func() bool {
		now, open := w.heard(s), s.open()
		for c, n := range now {
			if n == before[c] { // it was being opened
				for _, c := range open {
					c.tell(protocol.ToolsChanged, `{}`)
				}
				return false
			}
		}
		return len(now) == len(open)
	})
}

// heard is how often each open connection to a server has said that its tools changed, when
// none is being opened.
func (w *world) heard(s *script) map[*liveConn]uint64 {
	b := w.h.relay.table.Load().byName[s.name]
	all := make(map[*liveConn]uint64)
	eventually(w.h.t, "no connection is being opened", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for c := range b.conns {
			if b.starts == 0 && c.alive() {
				all[c] = c.offers.Changes("tools/list")
			}
		}
		return b.starts == 0
	})
	return all
}

// forbid changes the policy.
func (w *world) forbid() {
	key := []string{"uid:1000", "token:bob"}[w.rand.IntN(2)] + " " + []string{"alpha/echo", "beta/echo", "beta/other_1", "alpha/other_2"}[w.rand.IntN(4)]
	w.forbids[key] = !w.forbids[key]
	text := ""
	for key, on := range w.forbids {
		if who, tool, _ := strings.Cut(key, " "); on {
			text += fmt.Sprintf("forbid (principal == Principal::%q, action == Action::\"tools/call\", resource == Tool::%q);\n", who, tool)
		}
	}
	w.h.obey(text)
}

// respawn ends the server's processes, and waits until Doorward has noticed it. Sessions that
// listen open new ones meanwhile.
func (w *world) respawn(t *testing.T, s *script) {
	b := w.h.relay.table.Load().byName[s.name]
	conns := func() map[*liveConn]bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.prune()
		all := make(map[*liveConn]bool)
		for c := range b.conns {
			all[c] = true
		}
		return all
	}
	var old map[*liveConn]bool
	var open []*conn
	eventually(t, "no connection is being opened", func() bool {
		old, open = conns(), s.open()
		return len(old) == len(open)
	})
	for _, c := range open {
		c.close()
	}
	eventually(t, "its connections are over", func() bool {
		for c := range conns() {
			if old[c] {
				return false
			}
		}
		return true
	})
}

func (w *world) expected(who string) string {
	var out []string
	for _, s := range w.all {
		for _, tool := range w.offers[s.name] {
			if !w.forbids[who+" "+s.name+"/"+tool] {
				out = append(out, s.name+"__"+tool)
			}
		}
	}
	return join(out)
}
