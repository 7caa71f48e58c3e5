package relay

import (
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/test/policytest"
)

// When the policy changes, clients that listen are told that their lists may
// have changed: a modern client of the list that it was granted, a legacy
// client of the aggregate of all three. Sessions that are over are not kept
// among the listeners.
func TestListenersHearOfANewPolicy(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	old := web(t, "old", "legacy")
	h := build(t, []Server{s.server(), old.server()})
	modern, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true}`)
	all := h.legacy("/mcp", "uid:1000", `{}`)
	stream := all.listen()
	mute := h.legacy("/mcp", "uid:1000", `{}`) // has no standalone stream
	mute.call("tools/list", `{}`)

	h.gate.SetPolicy(policytest.New(t, 1000, nil))
	h.relay.Announce()
	equal(t, "modern", text(modern.next(), "method"), protocol.ToolsChanged)
	modern.silent()
	heard := map[string]bool{}
	for range 3 {
		heard[text(stream.next(), "method")] = true
	}
	if len(heard) != 3 {
		t.Errorf("the legacy client heard of %v, want all three lists", heard)
	}

	all.end()
	mute.end()
	eventually(t, "left", func() bool { return len(h.relay.sessions.audience.All()) == 1 })
}

// An approval is announced to the clients whose route has the server and that policy lets see it,
// whenever they listen. No other client hears of it.
func TestAnApprovalIsAnnouncedToThoseWhoSeeTheServer(t *testing.T) {
	t.Parallel()
	s, other := web(t, "s", "both"), web(t, "other", "both")
	book := shelf(t)
	h := build(t, []Server{s.server(pinnedBy(book, false)), other.server()})
	type listener struct {
		what  string
		sees  bool
		heard func() *heard // opens the stream, if it is not open
	}
	var all []listener
	for _, who := range []string{"uid:1000", "token:bob"} {
		for _, path := range []string{"/mcp", "/mcp/s", "/mcp/other"} {
			sees := who == "uid:1000" && path != "/mcp/other"
			early, late := h.legacy(path, who, `{}`), h.legacy(path, who, `{}`)
			for _, c := range []*session{early, late} {
				c.call("tools/list", `{}`)
			}
			stream := hear(early.listen())
			r, _ := h.modern(path, who).subscribe(everyList)
			t.Cleanup(r.stop)
			listen := hear(r)
			for what, open := range map[string]func() *heard{
				"legacy":                   func() *heard { return stream },
				"legacy, listening later,": sync.OnceValue(func() *heard { return hear(late.listen()) }),
				"modern":                   func() *heard { return listen },
			} {
				if what == "legacy, listening later," && who != "uid:1000" && path == "/mcp/s" {
					continue // the route does not exist for it any more
				}
				all = append(all, listener{what + " " + who + " on " + path, sees, open})
			}
		}
	}
	h.obey(`forbid (principal == Principal::"token:bob", action, resource == Server::"s");`)
	s.setList("tools/list", badTools)
	h.modern("/mcp/s", "uid:1000").call("tools/list", `{}`)
	s.setList("tools/list", twoTools)
	h.modern("/mcp/s", "uid:1000").call("tools/list", `{}`)
	h.relay.AnnounceOf("s")
	lists := func(l listener) (n int) {
		heard := l.heard()
		heard.mu.Lock()
		defer heard.mu.Unlock()
		for _, m := range heard.all {
			if strings.HasSuffix(text(m, "method"), "/list_changed") {
				n++
			}
		}
		return n
	}
	for _, l := range all {
		if l.sees {
			eventually(t, l.what+" hears of the approval", func() bool { return lists(l) >= 3 })
		}
		l.heard()
	}
	h.relay.Announce() // is heard by all, behind anything of the approval
	for _, l := range all {
		want := 3
		if l.sees {
			want = 6
		}
		eventually(t, l.what+" hears of a reload", func() bool { return lists(l) >= want })
		if n := lists(l); n != want {
			t.Errorf("%s hears %d changes, want %d", l.what, n, want)
		}
	}
}
