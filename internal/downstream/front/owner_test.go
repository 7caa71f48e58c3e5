package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// program is a witness that stops holding when a test sets gone.
type program struct {
	gone atomic.Bool
	kept atomic.Int32
	most atomic.Int32
	asks atomic.Int32
}

func (p *program) Holds() bool {
	p.asks.Add(1)
	return !p.gone.Load()
}

func (p *program) Retain() {
	if n := p.kept.Add(1); n > p.most.Load() {
		p.most.Store(n)
	}
}

func (p *program) Release() { p.kept.Add(-1) }

// process is a caller on the Unix socket: one user, many processes.
func process(instance string, w *program) *principal.Principal {
	return principal.New("uid:1", principal.Fact{Name: principal.FactInstance, Value: instance, Grade: principal.Attested}).WithLocal().WithWitness(w)
}

// same fails unless two answers are equal but for the date.
func same(t *testing.T, what string, a, b answer) {
	t.Helper()
	a.header.Del("Date")
	b.header.Del("Date")
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(answer{})); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

const unknownID = "aaaaaaaaaaaaaaaaaaaaaa"

// A session is found by the process that opened it, as long as that runs the same program.
// Any other caller gets the answer for an unknown id.
func TestASessionBelongsToOneProgram(t *testing.T) {
	t.Parallel()
	h := open(t, Options{Sessions: 50, SessionsPerPrincipal: 50})
	one, two := &program{}, &program{}
	h.who = map[string]*principal.Principal{"one": process("1", one), "two": process("2", two)}
	verbs := func(who, id string) []answer {
		call := `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`
		return []answer{
			h.do("POST", "/mcp/s", call, "Mcp-Session-Id", id, "Who", who),
			h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", id, "Who", who),
			h.do("POST", "/mcp/s", "["+call+"]", "Mcp-Session-Id", id, "Who", who),
			h.do("POST", "/mcp/s", hello, "Mcp-Session-Id", id, "Who", who),
			h.do("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Who", who),
			h.do("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", "0-1", "Who", who),
			h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", who),
		}
	}
	id := h.session("2025-11-25", "Who", "one")
	asked := one.asks.Load()
	unknown := verbs("two", unknownID)
	for i, a := range verbs("two", id) {
		same(t, fmt.Sprint("another process, request ", i), a, unknown[i])
	}
	if one.asks.Load() != asked {
		t.Error("a request of another process asks the witness of the session")
	}
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`, "Mcp-Session-Id", id, "Who", "one"); a.status != 200 {
		t.Errorf("its own process: %d", a.status)
	}
	one.gone.Store(true)
	for i, a := range verbs("one", id) {
		same(t, fmt.Sprint("another program, request ", i), a, unknown[i])
	}
	if n := h.reached(); n != 2 {
		t.Errorf("%d requests reached the Handler", n)
	}
	h.door.sweepLost()
	if n := h.door.Sessions(); n != 0 {
		t.Errorf("%d sessions of a program that is gone", n)
	}
}

// Over HTTP+SSE the program is checked again after the body has arrived: a message of a
// program that ended meanwhile gets the answer for an unknown session.
func TestAProgramThatEndsWhileItSends(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	one := &program{}
	h.who = map[string]*principal.Principal{"one": process("1", one)}
	_, events := h.stream("GET", "/sse/s", "", "Who", "one")
	path := string(frame(t, events).Data)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if a := h.do("POST", path, ping, "Who", "one"); a.status != 202 {
		t.Fatalf("%d", a.status)
	}
	frame(t, events)
	unknown := h.do("POST", "/messages/s?session_id="+unknownID, ping, "Who", "one")
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := one.asks.Load()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nWho: one\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(ping))
	h.eventually("the session is found", func() bool { return one.asks.Load() > asked })
	one.gone.Store(true)
	fmt.Fprint(conn, ping)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	same(t, "the program ended before the body came", answer{resp.StatusCode, resp.Header, string(body)}, unknown)
}

// only returns the only session.
func (d *Door) only(t *testing.T) (found *Session) {
	t.Helper()
	d.Each(func(s *Session) bool { found = s; return false })
	if found == nil {
		t.Fatal("no session")
	}
	return found
}

// A session retains its witness once and releases it once, however it ends.
func TestAWitnessIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *house, id string){
		"DELETE": func(h *house, id string) { h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "one") },
		"twice": func(h *house, _ string) {
			s := h.door.only(h.t)
			h.door.sessions.remove(s)
			h.door.sessions.remove(s)
			s.close()
		},
		"idle": func(h *house, _ string) {
			h.door.sessions.sweep(time.Now().Add(2 * time.Hour))
		},
		"gone":    func(h *house, _ string) { h.who["one"].Witness().(*program).gone.Store(true); h.door.sweepLost() },
		"closing": func(h *house, _ string) { h.door.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{})
			w := &program{}
			h.who = map[string]*principal.Principal{"one": process("1", w)}
			id := h.session("2025-11-25", "Who", "one")
			if w.kept.Load() != 1 {
				t.Fatalf("kept %d times", w.kept.Load())
			}
			h.t = t
			end(h, id)
			if w.kept.Load() != 0 || w.most.Load() != 1 {
				t.Errorf("kept %d times, %d at most", w.kept.Load(), w.most.Load())
			}
		})
	}
	t.Run("an initialize that fails, and one that finds no room", func(t *testing.T) {
		t.Parallel()
		h := open(t, Options{Sessions: 1, SessionsPerPrincipal: 1})
		w := &program{}
		h.who = map[string]*principal.Principal{"one": process("1", w)}
		h.refuseHello.Store(true)
		h.do("POST", "/mcp/s", hello, "Who", "one")
		if w.kept.Load() != 0 || w.most.Load() != 1 {
			t.Errorf("failed: kept %d times, %d at most", w.kept.Load(), w.most.Load())
		}
		h.refuseHello.Store(false)
		h.session("2025-11-25", "Who", "one")
		h.do("POST", "/mcp/s", hello, "Who", "one")
		if w.kept.Load() != 1 || h.door.Sessions() != 1 {
			t.Errorf("no room: kept %d times, %d sessions", w.kept.Load(), h.door.Sessions())
		}
	})
}

// A request is one of the same program when it names a session that was issued to its own program. An
// initialize, a request of the modern era and a caller without a witness are not.
func TestARequestInASessionOfItsProgramIsOfTheSameProgram(t *testing.T) {
	t.Parallel()
	h := open(t, Options{Sessions: 50, SessionsPerPrincipal: 50})
	one, later := &program{}, &program{}
	h.who = map[string]*principal.Principal{"one": process("1", one), "later": process("1", later)}
	var mu sync.Mutex
	seen := map[string]bool{}
	h.watch = func(x *Exchange) { mu.Lock(); seen[x.Method] = x.SameProgram; mu.Unlock() }
	h.serve = func(context.Context, *Exchange) Reply { return Reply{Result: []byte(`{}`)} }
	expect := func(method string, want bool) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		got, known := seen[method]
		if !known || got != want {
			t.Errorf("%s: same program %v, known %v", method, got, known)
		}
		delete(seen, method)
	}
	call := func(method, id, who string) {
		t.Helper()
		h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`, "Mcp-Session-Id", id, "Who", who)
	}
	id := h.session("2025-11-25", "Who", "one")
	expect("initialize", false)
	call("in/session", id, "one")
	expect("in/session", true)
	call("on/another/connection", id, "later")
	expect("on/another/connection", true)
	// The other connection's program is gone: its facts do not hold, although the
	// session does.
	later.gone.Store(true)
	call("with/old/facts", id, "later")
	expect("with/old/facts", false)
	h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/told"}`, "Mcp-Session-Id", id, "Who", "one")
	expect("notifications/told", true)
	batch := h.session("2025-03-26", "Who", "one")
	expect("initialize", false)
	h.do("POST", "/mcp/s", `[{"jsonrpc":"2.0","id":1,"method":"in/batch"}]`, "Mcp-Session-Id", batch, "Who", "one")
	expect("in/batch", true)
	h.do("POST", "/mcp/s", modernBody("one/shot"), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "one/shot", "Who", "one")
	expect("one/shot", false)
	plain := h.session("2025-11-25", "Who", "bob")
	call("without/witness", plain, "bob")
	expect("without/witness", false)
	_, events := h.stream("GET", "/sse/s", "", "Who", "one")
	path := string(frame(t, events).Data)
	h.do("POST", path, hello, "Who", "one")
	frame(t, events)
	expect("initialize", false)
	h.do("POST", path, `{"jsonrpc":"2.0","id":1,"method":"in/sse"}`, "Who", "one")
	frame(t, events)
	expect("in/sse", true)
}

func modernBody(method string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// A session or request over a limit is passed to Full with the rule that refused it, and is
// answered with the reply of Full.
func TestARequestOverALimitIsPassedToFull(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var rules []string
	o := Options{Sessions: 3, SessionsPerPrincipal: 2, CallsPerPrincipal: 1}
	o.Full = func(x *Exchange, rule string) Reply {
		mu.Lock()
		defer mu.Unlock()
		rules = append(rules, rule+" "+x.Who.Name()+" "+x.Server+" "+x.Method)
		return Reply{Error: &wire.Error{Code: 1503, Message: "full", Data: []byte(`{"ref":7}`)}, RetryAfter: 9}
	}
	h := open(t, o)
	full := func(what string, a answer) {
		t.Helper()
		if a.status != 503 || a.header.Get("Retry-After") != "9" || !strings.Contains(a.body, `"ref":7`) {
			t.Errorf("%s: %d %v %s", what, a.status, a.header, a.body)
		}
	}
	id := h.session("2025-11-25")
	batch := h.session("2025-03-26")
	full("a session more", h.do("POST", "/mcp/s", hello))
	full("by the old transport", h.do("GET", "/sse/s", ""))
	h.session("2025-11-25", "Who", "bob")
	full("a session more of all", h.do("POST", "/mcp", hello, "Who", "bob"))

	arrived, proceed := make(chan bool), make(chan bool)
	h.serve = func(context.Context, *Exchange) Reply { arrived <- true; <-proceed; return Reply{Result: []byte(`{}`)} }
	var wg sync.WaitGroup
	for _, s := range []string{id, batch} {
		wg.Go(func() { h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"slow"}`, "Mcp-Session-Id", s) })
		<-arrived
	}
	full("a request more", h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":2,"method":"more"}`, "Mcp-Session-Id", id))
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"again"}`, "Mcp-Session-Id", id); a.status != 400 {
		t.Errorf("an id in use: %d", a.status)
	}
	if a := h.do("POST", "/mcp/s", `[{"jsonrpc":"2.0","id":3,"method":"element"}]`, "Mcp-Session-Id", batch); a.status != 200 || !strings.Contains(a.body, `"ref":7`) {
		t.Errorf("an element more: %d %s", a.status, a.body)
	}
	proceed <- true
	proceed <- true
	wg.Wait()
	want := []string{"limits.sessions_per_principal uid:1 s initialize", "limits.sessions_per_principal uid:1 s initialize", "limits.sessions uid:2  initialize",
		"limits.calls_per_principal uid:1 s more", "limits.calls_per_principal uid:1 s element"}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("recorded, -want +got:\n%s", diff)
	}
}

// Calls and streams end when the proof that they were requested with no longer holds. Those
// of other callers, and of the same caller with a newer proof, go on.
func TestCallsAndStreamsEndWithTheirProof(t *testing.T) {
	t.Parallel()
	var revoked sync.Map
	h := open(t, Options{Sessions: 50, SessionsPerPrincipal: 50,
		Holds: func(p *principal.Principal) bool { _, gone := revoked.Load(p); return !gone }})
	old, next, other := principal.New("token:ci"), principal.New("token:ci"), principal.New("token:other")
	h.who = map[string]*principal.Principal{"old": old, "next": next, "other": other}
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		if x.Method == "stream" {
			x.StartStream()
		}
		<-ctx.Done()
		return Reply{None: true}
	}
	session := h.session("2025-11-25", "Who", "old")
	young := h.session("2025-11-25", "Who", "next")
	strange := h.session("2025-11-25", "Who", "other")
	events, sseEvents := h.stream("GET", "/sse/s", "", "Who", "old")
	frame(t, sseEvents)
	_, get := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", session, "Who", "old")
	_, getYoung := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", young, "Who", "old") // the session of the new token, requested with the old one
	_, kept := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", strange, "Who", "other")
	modern := []string{"Mcp-Protocol-Version", "2026-07-28", "Who", "old", "Mcp-Method"}
	_, listen := h.stream("POST", "/mcp/s", modernBody("stream"), append(modern, "stream")...)
	answers := make(chan answer, 3)
	go func() { answers <- h.do("POST", "/mcp/s", modernBody("hang"), append(modern, "hang")...) }()
	go func() {
		answers <- h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"hang"}`, "Mcp-Session-Id", session, "Who", "old")
	}()
	go func() {
		answers <- h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"hang"}`, "Mcp-Session-Id", young, "Who", "old")
	}()
	h.await("hang", 3)
	h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, "Mcp-Session-Id", session, "Who", "next") // uses the session with the new token
	h.door.sweepLost()
	if h.door.Sessions() != 4 || len(answers) != 0 {
		t.Fatalf("while all hold: %d sessions, %d calls over", h.door.Sessions(), len(answers))
	}

	revoked.Store(old, true)
	h.door.sweepLost()
	h.eventually("the calls of the old token are over", func() bool { return len(answers) == 3 })
	for range 3 {
		a := <-answers
		if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("a call of the old token: %d %v %s", a.status, a.header, a.body)
		}
	}
	streams := map[string]*sse.Reader{"GET": get, "GET of another's session": getYoung, "listen": listen, "SSE": sseEvents}
	ended := make(chan string, len(streams))
	for name, events := range streams {
		go func() {
			for {
				if _, err := events.Next(); err != nil {
					ended <- name
					return
				}
			}
		}()
	}
	for limit := time.After(20 * time.Second); len(streams) > 0; {
		select {
		case name := <-ended:
			delete(streams, name)
		case <-limit:
			t.Fatalf("streams of the old token go on: %v", slices.Collect(maps.Keys(streams)))
		}
	}
	events.Body.Close()
	h.eventually("the session of the old transport is gone", func() bool { return h.door.Sessions() == 3 })
	for _, id := range []string{session, young} {
		if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":6,"method":"tools/list"}`, "Mcp-Session-Id", id, "Who", "next"); a.status != 200 {
			t.Errorf("the new token in a session: %d", a.status)
		}
	}
	h.door.Each(func(s *Session) bool { s.Notify("notifications/still", nil); return true })
	if e := frame(t, kept); !strings.Contains(string(e.Data), "still") {
		t.Errorf("another's stream: %s", e.Data)
	}
	h.eventually("the lease of the stream that is left is the only one", func() bool {
		left := 0
		h.door.leases.Range(func(any, any) bool { left++; return true })
		return left == 1
	})
	revoked.Store(next, true)
	h.door.sweepLost()
	if n := h.door.Sessions(); n != 1 {
		t.Errorf("%d sessions are left, of one that holds", n)
	}
}
