package relay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/subscribe"
)

// selective is a server that accepts subscriptions of a and z alone.
func selective(t *testing.T, era string) *script {
	s := stdio(t, "s", era)
	refused := func(uri string) bool { return uri != "file:///a" && uri != "file:///z" }
	s.serve = func(q *query) {
		if uri := text(string(q.Params), "uri"); q.Method == "resources/subscribe" && refused(uri) {
			q.fail(-32002, "Resource not found")
			return
		}
		q.result(`{}`)
	}
	s.onListen = func(q *query) string {
		f := subscribe.ParseFilter(rawjson.Get(q.Params, "notifications"))
		for uri := range f.URIs {
			if refused(uri) {
				delete(f.URIs, uri)
			}
		}
		return string(f.JSON())
	}
	return s
}

// kept returns the resources of server s in the stored state of a client's session.
func (h *house) kept(c *session) string {
	var now remembered
	if err := json.Unmarshal(h.sessionOf(c).Remembered(), &now); err != nil {
		h.t.Fatal(err)
	}
	return join(now.Resources["s"])
}

// A subscription that the server refuses is not in the stored state of the session, and the
// server is not asked for it again on the next connection.
func TestARefusedSubscriptionIsNotKept(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} {
			t.Run(era+path, func(t *testing.T) {
				t.Parallel()
				s := selective(t, era)
				h := build(t, []Server{s.server()})
				c := h.legacy(path, "uid:1000", `{}`)
				for _, name := range []string{"a", "no1", "no2", "z", "no3"} {
					answer := c.call("resources/subscribe", `{"uri":"`+prefix+`file:///`+name+`"}`)
					equal(t, name+" is refused", fmt.Sprint(code(answer) != ""), fmt.Sprint(strings.HasPrefix(name, "no")))
				}
				equal(t, "stored", h.kept(c), "file:///a file:///z")
				asked := len(s.watched())
				eventually(t, "it pauses", func() bool { _, idle := h.sessionOf(c).IdleSince(); return idle })
				h.relay.sessions.rest(time.Now().Add(time.Hour))
				h.relay.table.Load().byName["s"].sweep(time.Now().Add(time.Hour))
				c.call("completion/complete", `{"ref":{"type":"ref/resource","uri":"`+prefix+`file:///a"},"argument":{"name":"p","value":""}}`)
				eventually(t, "asked again", func() bool { return slices.Contains(s.watched()[asked:], "file:///z") })
				equal(t, "asked again", join(s.watched()[asked:]), "file:///a file:///z")
			})
		}
	}
}

// A session has at most as many subscriptions as a listen, over all servers. The server is
// not asked for a further one, and it is not kept; there is room again after one has ended.
func TestTheSubscriptionsOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", era)
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			ask := func(verb, name string) string {
				return code(c.call("resources/"+verb, `{"uri":"file:///`+name+`"}`))
			}
			equal(t, "the first", ask("subscribe", "a"), "")
			d := bound(h.sessionOf(c))
			d.mu.Lock()
			for i := range maxObjects - 1 {
				d.memory.keep("elsewhere", slices.Values([]string{fmt.Sprint(i)}))
			}
			d.mu.Unlock()
			equal(t, "one too many", ask("subscribe", "b"), "-32602")
			equal(t, "one that it has", ask("subscribe", "a"), "")
			equal(t, "stored", h.kept(c), "file:///a")
			if slices.Contains(s.watched(), "file:///b") {
				t.Error("the server was asked for it")
			}
			equal(t, "one less", ask("unsubscribe", "a"), "")
			equal(t, "room for another", ask("subscribe", "b"), "")
			equal(t, "stored", h.kept(c), "file:///b")
		})
	}
}
