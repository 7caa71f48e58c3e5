package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/overload"
)

// The first calls to a server that cannot be reached fail when it was tried, the others at once and with a time to come
// again. Each failure has its record, and status tells the state.
func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.URL = "http://127.0.0.1:1/" })})
	m := h.modern("/mcp/s", "uid:1000")
	refused := 0
	for i := range 20 {
		start := time.Now()
		r := m.begin("tools/call", fmt.Sprintf(`{"name":"t%d"}`, i))
		end := r.end()
		if r.status != http.StatusBadGateway || code(end) != "1502" || text(end, "error", "message") != "Upstream failed" || field(end, "error", "data", "ref") == "" {
			t.Fatalf("%d %s", r.status, end)
		}
		if r.header.Get("Retry-After") != "" {
			refused++
			if d := time.Since(start); d > 2*time.Second+overload.Late() {
				t.Errorf("refused after %s", d)
			}
		}
		equal(t, "outcome", h.outcome(h.decided("tools/call", fmt.Sprintf("s/t%d", i))), "failed")
	}
	if refused < 10 {
		t.Errorf("%d of 20 were refused at once", refused)
	}
	st := h.relay.Status()[0]
	if st.State != "failing" || !strings.Contains(st.Reason, "next attempt in") {
		t.Errorf("status: %+v", st)
	}
}

// wallet is a sign-in that a person has to make, or has made.
type wallet struct{ done atomic.Bool }

func (w *wallet) Authorize(context.Context) (string, error) { return "Bearer x", nil }

func (w *wallet) Refused(context.Context, string, *http.Response) (bool, error) {
	return false, fmt.Errorf("canary: %w", upstream.ErrSignIn)
}

func (w *wallet) Needs() (string, error) {
	if w.done.Load() {
		return "", nil
	}
	return "doorward login s", nil
}

// A server that needs a sign-in gives the caller a constant text, the operator the command and the record the outcome
// "sign-in". Lists of the aggregate go on without it.
func TestServerThatWantsASignIn(t *testing.T) {
	t.Parallel()
	s, good := web(t, "s", "modern"), web(t, "good", "modern")
	w := &wallet{}
	s.status = func(*query) int {
		if w.done.Load() {
			return 0
		}
		return http.StatusUnauthorized
	}
	server := s.server()
	up, err := upstream.New(upstream.Definition{Name: "s", Kind: "http", URL: s.address, AllowPrivate: true},
		upstream.Deps{Log: slog.New(slog.DiscardHandler), Credential: w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	server.Upstream, server.SignIn = up, w
	h := build(t, []Server{server, good.server()})
	for _, call := range []func() *reply{
		func() *reply { return h.modern("/mcp/s", "uid:1000").begin("tools/call", `{"name":"t"}`) },
		func() *reply { return h.modern("/mcp", "uid:1000").begin("tools/call", `{"name":"s__t"}`) },
	} {
		r := call()
		end := r.end()
		if r.status != http.StatusBadGateway || code(end) != "1502" || text(end, "error", "message") != "Upstream needs sign-in" || strings.Contains(end, "canary") {
			t.Errorf("%d %s", r.status, end)
		}
	}
	equal(t, "outcome", h.outcome(h.decided("tools/call", "s/t")), "sign-in")
	st := h.relay.Status()[1]
	equal(t, "status", st.State+": "+st.Reason, "failing: sign-in needed: doorward login s")
	if end := h.modern("/mcp", "uid:1000").call("tools/list", `{}`); strings.Contains(end, `"s__`) || code(end) != "" {
		t.Errorf("the aggregate: %s", end)
	}
	w.done.Store(true)
	if end := h.modern("/mcp/s", "uid:1000").call("tools/call", `{"name":"t"}`); code(end) != "" {
		t.Errorf("afterwards: %s", end)
	}
	equal(t, "status afterwards", h.relay.Status()[1].Reason, "")
}

// Listens of clients have a cap for each server; the next is refused at once, with the number of its one record.
func TestCapOnListens(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server(func(r *Server, _ *upstream.Definition) { r.MaxStreams = 2 })})
	m := h.modern("/mcp/s", "uid:1000")
	one, _ := m.subscribe(everyList)
	m.subscribe(everyList)
	busy(t, h, "a third listen", m.begin("subscriptions/listen", `{"notifications":`+everyList+`}`), "mcpServers.s.doorward.max_streams")
	one.stop()
	eventually(t, "there is room again", func() bool {
		r := m.begin("subscriptions/listen", `{"notifications":`+everyList+`}`)
		defer r.stop()
		return r.status == http.StatusOK
	})
	if r := h.modern("/mcp/s", "token:bob").begin("tools/call", `{"name":"t"}`); r.status != http.StatusOK {
		t.Errorf("calls are not counted with them: %d", r.status)
	}
}

// A stdio server that ends when it is initialized twice serves any number of clients that share it: the one handshake
// of each child is made by Doorward.
func TestSecondClientOfAStdioServer(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	var mu sync.Mutex
	hands := make(map[*conn]int)
	s.refuse = func(q *query) bool {
		mu.Lock()
		defer mu.Unlock()
		if hands[q.conn]++; hands[q.conn] > 1 {
			q.conn.close()
		}
		return hands[q.conn] > 1
	}
	s.serve = func(q *query) { q.result(`{"served":true}`) }
	h := build(t, []Server{s.server(instances("shared"), func(r *Server, _ *upstream.Definition) { r.Protocol = "legacy" })})
	var clients []*session
	for i := range 5 {
		clients = append(clients, h.legacy("/mcp/s", fmt.Sprintf("token:t%d", i), `{}`))
	}
	for range 2 {
		for _, c := range clients {
			equal(t, "a client of the older era", field(c.tool("t", ""), "result", "served"), "true")
		}
		equal(t, "one of the newer", field(h.modern("/mcp/s", "uid:1000").call("tools/call", `{"name":"t"}`), "result", "served"), "true")
	}
	if n := len(s.got("initialize")); n != 2 || s.connected() != 2 { // one for each era of its clients
		t.Errorf("%d handshakes, %d children", n, s.connected())
	}
}
