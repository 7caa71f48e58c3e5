package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

func atLevel(level string) []rawjson.Edit {
	return []rawjson.Edit{{Key: wire.MetaLogLevel, Value: []byte(`"` + level + `"`)}}
}

// chatty is a legacy server whose tools write two log messages. They wait for the test
// before and after them.
func chatty(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "logging/setLevel" {
			q.result(`{}`)
			return
		}
		q.arrive()
		for _, level := range []string{"debug", "error"} {
			q.notify("notifications/message", fmt.Sprintf(`{"level":%q,"data":%q}`, level, q.name()))
		}
		q.arrive()
		q.result(`{"of":%q}`, q.name())
	}
	return s
}

// A legacy server that writes no log before it is told a level is told the most verbose
// one that a modern request has named. Each client gets what it asked for, also of calls
// that run at the same time over one pipe.
func TestLogsOfALegacyServerForModernClients(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := chatty(t, start)
			h := build(t, []Server{s.server()})
			loud, calm, deaf := h.modern("/mcp/s", "uid:1000"), h.modern("/mcp/s", "token:calm"), h.modern("/mcp/s", "uid:1000")
			loud.meta, calm.meta = atLevel("debug"), atLevel("error")
			all := make(chan *reply, 4)
			for i, m := range []*modern{loud, loud, calm, deaf} {
				go func() { all <- m.begin("tools/call", fmt.Sprintf(`{"name":"t%d"}`, i)) }()
				eventually(t, "the call is there", func() bool { return len(s.got("tools/call")) == i+1 })
			}
			for range 8 {
				s.proceed <- struct{}{}
			}
			heard := make(map[string]int)
			for range 4 {
				r := <-all
				if of := text(r.end(), "result", "of"); of == "t3" {
					equal(t, "deaf", join(r.before), "")
				}
				for _, m := range r.before {
					heard[text(m, "params", "data")+" "+text(m, "params", "level")]++
				}
			}
			for _, name := range []string{"t0", "t1"} {
				equal(t, name, fmt.Sprint(heard[name+" debug"], heard[name+" error"]), "1 1")
			}
			equal(t, "calm", fmt.Sprint(heard["t2 debug"], heard["t2 error"]), "0 1")
			equal(t, "the server was told", field(string(s.got("logging/setLevel")[0].Params), "level"), `"debug"`)
			equal(t, "on record", h.outcome(h.decided("logging/setLevel", "s")), "ok")
		})
	}
}

// On a connection that principals share, a client hears no log message of another's call.
func TestLogsOfASharedServer(t *testing.T) {
	t.Parallel()
	s := chatty(t, stdio)
	h := build(t, []Server{s.server(instances("shared"))})
	all := make(chan *reply, 2)
	for i, who := range []string{"token:alice", "token:bob"} {
		m := h.modern("/mcp/s", who)
		m.meta = atLevel("debug")
		go func() { all <- m.begin("tools/call", fmt.Sprintf(`{"name":"t%d"}`, i)) }()
		eventually(t, "the call is there", func() bool { return len(s.got("tools/call")) == i+1 })
	}
	for range 4 {
		s.proceed <- struct{}{}
	}
	for range 2 {
		r := <-all
		end := r.end()
		for _, m := range r.before {
			equal(t, "whose message", text(m, "params", "data"), text(end, "result", "of"))
		}
	}
}

// A log level that a shared server did not get, because the server or policy refused it, is
// set by the next client that asks for it. A level that it got is not set again.
func TestALogLevelThatWasRefusedIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"legacy", "modern"} {
		for _, mode := range []string{"shared", "principal"} {
			t.Run(client+" "+mode, func(t *testing.T) {
				t.Parallel()
				retried(t, client, mode)
			})
		}
	}
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		s := stdio(t, "s", "legacy")
		h := build(t, []Server{s.server(instances("shared"))})
		h.forbid(`forbid (principal == Principal::"token:alice", action == Action::"logging/setLevel", resource);`)
		for i, who := range []string{"token:alice", "token:bob", "token:carol"} {
			m := h.modern("/mcp/s", who)
			m.meta = atLevel("debug")
			m.tool("echo", "")
			equal(t, "levels set after "+who, fmt.Sprint(len(s.got("logging/setLevel"))), fmt.Sprint(min(i, 1)))
		}
	})
}

// A server that does not answer a logging/setLevel delays one request for that, not each.
func TestAServerThatIgnoresTheLogLevelIsToldOnce(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method != "logging/setLevel" {
			q.result(`{}`)
		}
	}
	h := build(t, []Server{s.server(instances("shared"))})
	m := h.modern("/mcp/s", "uid:1000")
	m.tool("echo", "")
	b := h.relay.table.Load().byName["s"]
	x := exchangeOf("uid:1000")
	x.Era, x.Params = front.Modern, rawjson.SetIn([]byte(`{}`), "_meta", atLevel("debug")...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	h.relay.levels.raise(ctx, x, b, b.openFor(x.Who, front.Modern))
	s.last("logging/setLevel")
	m.meta = atLevel("debug")
	m.tool("echo", "")
	equal(t, "told", fmt.Sprint(len(s.got("logging/setLevel"))), "1")
}

func retried(t *testing.T, client, mode string) {
	s := stdio(t, "s", "legacy")
	var refuse atomic.Bool
	s.serve = func(q *query) {
		if q.Method == "logging/setLevel" && refuse.Load() {
			q.fail(-32603, "not now")
			return
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server(instances(mode))})
	old, m := h.legacy("/mcp/s", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
	for i, step := range []struct {
		level  string
		refuse bool
		heard  int // by the server, so far
	}{
		{"error", true, 1}, {"error", false, 2}, {"error", false, 2}, // the level of the server is error
		{"debug", true, 3}, {"warning", true, 4}, {"error", false, 4}, // and still is
		{"warning", false, 5}, {"debug", false, 6}, {"error", false, 6},
	} {
		refuse.Store(step.refuse)
		if client == "modern" {
			m.meta = atLevel(step.level)
			m.tool("echo", "")
		} else {
			answer := old.call("logging/setLevel", `{"level":"`+step.level+`"}`)
			equal(t, fmt.Sprint(i, " is refused"), fmt.Sprint(code(answer) != ""), fmt.Sprint(step.refuse))
		}
		all := s.got("logging/setLevel")
		equal(t, fmt.Sprint(i, " ", step.level, ": heard"), fmt.Sprint(len(all)), fmt.Sprint(step.heard))
	}
}
