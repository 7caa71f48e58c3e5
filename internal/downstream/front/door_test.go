package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

// house is a door on a real listener with a scripted Handler behind it.
type house struct {
	t      *testing.T
	door   *Door
	url    string
	mu     sync.Mutex
	seen   []string // methods that reached the Handler
	refuse []int
	serve  func(ctx context.Context, x *Exchange) Reply
	known  func(server string) bool        // nil: all but hidden
	who    map[string]*principal.Principal // further callers, set before their requests
	watch  func(*Exchange)                 // sees what reaches the Handler

	refuseHello atomic.Bool
}

var (
	alice = principal.New("uid:1")
	bob   = principal.New("uid:2")
)

// open starts a house. The header Who selects the principal, in place of
// authentication.
func open(t *testing.T, o Options) *house {
	t.Helper()
	h := &house{t: t}
	o.Handler = h
	o.Screen = func(r *http.Request) bool { return r.Header.Get("Origin") == "" }
	o.Authenticate = func(r *http.Request) (*principal.Principal, error) {
		if p := h.who[r.Header.Get("Who")]; p != nil {
			return p, nil
		}
		switch r.Header.Get("Who") {
		case "nobody":
			return nil, errors.New("secret detail")
		case "nil":
			return nil, nil
		case "limited":
			return nil, ErrLimited
		case "bob":
			return bob, nil
		}
		return alice, nil
	}
	o.Refused = func(_ *http.Request, status int, _ error) {
		h.mu.Lock()
		h.refuse = append(h.refuse, status)
		h.mu.Unlock()
	}
	if o.BodyBytes == 0 {
		o.BodyBytes = 1 << 16
	}
	if o.Sessions == 0 {
		o.Sessions, o.SessionsPerPrincipal = 10, 5
	}
	o.IdleSession = time.Hour
	h.door = New(o)
	s := httptest.NewServer(h.door)
	h.url = s.URL
	t.Cleanup(func() { h.door.Close(); s.Close() })
	return h
}

func (h *house) Known(_ *principal.Principal, server string) bool {
	if h.known != nil {
		return h.known(server)
	}
	return server != "hidden"
}

func (h *house) Request(ctx context.Context, x *Exchange) Reply {
	h.note(x.Method)
	if h.watch != nil {
		h.watch(x)
	}
	switch x.Method {
	case "initialize":
		if h.refuseHello.Load() {
			return Reply{Error: errNoSuchMethod}
		}
		return Reply{Result: []byte(`{"protocolVersion":"` + x.Version + `"}`)}
	case "tools/list":
		return Reply{Result: []byte(`{"tools":[]}`)}
	}
	h.mu.Lock()
	f := h.serve
	h.mu.Unlock()
	if f != nil {
		return f(ctx, x)
	}
	return Reply{Result: []byte(`{"echo":` + string(x.Params) + `}`)}
}

func (h *house) Notification(_ context.Context, x *Exchange) *wire.Error {
	h.note(x.Method)
	if h.watch != nil {
		h.watch(x)
	}
	if x.Method == "notifications/refused" {
		return errNoSuchMethod
	}
	return nil
}

func (h *house) eventually(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal("never happened: ", what)
		}
	}
}

// await waits until n requests of a method have reached the Handler.
func (h *house) await(method string, n int) {
	h.t.Helper()
	h.eventually(method, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		got := 0
		for _, m := range h.seen {
			if m == method {
				got++
			}
		}
		return got >= n
	})
}

func (h *house) note(method string) {
	h.mu.Lock()
	h.seen = append(h.seen, method)
	h.mu.Unlock()
}

func (h *house) reached() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

// answer is one HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (h *house) do(method, path, body string, header ...string) answer {
	h.t.Helper()
	req, err := http.NewRequest(method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Add(header[i], header[i+1])
		}
	}
	client := doortest.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`

// session opens an MCP session of the legacy era and returns its id.
func (h *house) session(version string, header ...string) string {
	h.t.Helper()
	a := h.do("POST", "/mcp/s", strings.Replace(hello, "2025-11-25", version, 1), header...)
	if a.status != 200 || a.header.Get("Mcp-Session-Id") == "" {
		h.t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	return a.header.Get("Mcp-Session-Id")
}

func TestRefusalsAtTheDoor(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	call := `{"jsonrpc":"2.0","id":1,"method":"x/y"}`
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		contains                 string
	}{
		{"foreign origin", "POST", "/mcp", call, []string{"Origin", "http://evil.example"}, 403, "Forbidden"},
		{"foreign origin on GET", "GET", "/mcp", "", []string{"Origin", "http://evil.example"}, 403, ""},
		{"foreign origin on health", "GET", "/health", "", []string{"Origin", "http://evil.example"}, 403, ""},
		{"foreign origin before authentication", "POST", "/mcp", call, []string{"Origin", "null", "Who", "nobody"}, 403, ""},
		{"not authenticated", "POST", "/mcp", call, []string{"Who", "nobody"}, 401, "Unauthorized"},
		{"not authenticated on an unknown path", "GET", "/nowhere", "", []string{"Who", "nobody"}, 401, ""},
		{"a nil principal is nobody", "POST", "/mcp", call, []string{"Who", "nil"}, 401, ""},
		{"too many failures", "POST", "/mcp", call, []string{"Who", "limited"}, 429, ""},
		{"health needs nobody", "GET", "/health", "", []string{"Who", "nobody"}, 200, `{"status":"ok"}`},
		{"health by POST is a path like any", "POST", "/health", "{}", []string{"Who", "nobody"}, 401, ""},
		{"unknown path", "GET", "/nowhere", "", nil, 404, ""},
		{"encoded path", "POST", "/%6dcp", call, nil, 404, ""},
		{"doubled slash", "POST", "//mcp", call, nil, 404, ""},
		{"dot segments", "POST", "/x/../mcp", call, nil, 404, ""},
		{"trailing slash", "POST", "/mcp/", call, nil, 404, ""},
		{"other case", "POST", "/MCP", call, nil, 404, ""},
		{"unknown server", "POST", "/mcp/hidden", call, nil, 404, "-32601"},
		{"unknown server by sse", "GET", "/sse/hidden", "", nil, 404, "-32601"},
		{"method", "PUT", "/mcp", "", nil, 405, ""},
		{"OPTIONS", "OPTIONS", "/mcp", "", nil, 405, ""},
		{"text/plain", "POST", "/mcp", call, []string{"Content-Type", "", "Content-Type", "text/plain"}, 415, ""},
		{"no content type", "POST", "/mcp", call, []string{"Content-Type", ""}, 415, ""},
		{"two content types", "POST", "/mcp", call, []string{"Content-Type", "application/json"}, 415, ""},
		{"latin-1", "POST", "/mcp", call, []string{"Content-Type", "", "Content-Type", "application/json; charset=latin1"}, 415, ""},
		{"neither type accepted", "POST", "/mcp", call, []string{"Accept", "text/html"}, 406, ""},
		{"types refused by quality", "POST", "/mcp", call, []string{"Accept", "application/json;q=0, text/event-stream;q=0.0"}, 406, ""},
		{"two session ids", "POST", "/mcp", call, []string{"Mcp-Session-Id", "aaaaaaaa", "Mcp-Session-Id", "bbbbbbbb"}, 400, "-32600"},
		{"body too large", "POST", "/mcp", `"` + strings.Repeat("x", 1<<16) + `"`, nil, 413, ""},
		{"not JSON", "POST", "/mcp", `{`, nil, 400, "-32700"},
		{"empty body", "POST", "/mcp", ``, nil, 400, "-32700"},
		{"duplicate method", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400, "-32700"},
		{"method in capitals beside it", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`, nil, 400, ""},
		{"two values", "POST", "/mcp", call + call, nil, 400, "-32700"},
		{"null id", "POST", "/mcp", `{"jsonrpc":"2.0","id":null,"method":"x"}`, nil, 400, "-32600"},
		{"no session", "POST", "/mcp", call, nil, 400, "-32600"},
		{"batch without session", "POST", "/mcp", `[` + call + `]`, nil, 400, "-32600"},
		{"unknown session", "POST", "/mcp", call, []string{"Mcp-Session-Id", "aaaaaaaaaaaaaaaaaaaaaa"}, 404, "-32600"},
		{"malformed session", "POST", "/mcp", call, []string{"Mcp-Session-Id", "../../etc"}, 404, "-32600"},
		{"unknown version", "POST", "/mcp", call, []string{"Mcp-Protocol-Version", "1.0"}, 400, "-32600"},
		{"GET without session", "GET", "/mcp", "", nil, 405, ""},
		{"DELETE without session", "DELETE", "/mcp", "", nil, 405, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := h.reached()
			a := h.do(tt.method, tt.path, tt.body, tt.header...)
			if a.status != tt.status || !strings.Contains(a.body, tt.contains) {
				t.Errorf("got %d %q, want %d with %q", a.status, a.body, tt.status, tt.contains)
			}
			if strings.Contains(a.body, "secret detail") {
				t.Errorf("the caller is told the reason: %q", a.body)
			}
			if a.status == 401 && !strings.HasPrefix(a.header.Get("Www-Authenticate"), "Bearer") {
				t.Error("401 without WWW-Authenticate")
			}
			if (a.status == 429 || a.status == 503) && a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if h.reached() != before {
				t.Error("the message reached the handler")
			}
		})
	}
}

// raw sends bytes as they are and returns the first line of the answer.
func raw(t *testing.T, url, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, request)
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

func TestUnneededRequestFormsAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	for name, request := range map[string]string{
		"absolute form":  "GET http://other/health HTTP/1.1\r\nHost: a\r\n\r\n",
		"HTTP/1.0":       "GET /health HTTP/1.0\r\n\r\n",
		"CONNECT":        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"TRACE":          "TRACE /health HTTP/1.1\r\nHost: a\r\n\r\n",
		"upgrade":        "GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"two Hosts":      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"no Host in 1.1": "GET /health HTTP/1.1\r\n\r\n",
	} {
		if line := raw(t, h.url, request); !strings.Contains(line, " 400 ") {
			t.Errorf("%s: %q, want 400", name, line)
		}
	}
}

func TestASessionBelongsToItsPrincipalAndRoute(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	id := h.session("2025-11-25")
	call := `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`
	unknown := h.do("POST", "/mcp/s", call, "Mcp-Session-Id", "aaaaaaaaaaaaaaaaaaaaaa")
	for name, a := range map[string]answer{
		"another principal":           h.do("POST", "/mcp/s", call, "Mcp-Session-Id", id, "Who", "bob"),
		"another route":               h.do("POST", "/mcp", call, "Mcp-Session-Id", id),
		"another transport":           h.do("POST", "/messages/s?session_id="+id, call),
		"GET by another principal":    h.do("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "bob"),
		"DELETE by another principal": h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "bob"),
	} {
		if a.status != unknown.status || len(a.body) > len(unknown.body) {
			t.Errorf("%s: %d %q, an unknown session gets %d %q", name, a.status, a.body, unknown.status, unknown.body)
		}
	}
	if a := h.do("POST", "/mcp/s", call, "Mcp-Session-Id", id); a.status != 200 {
		t.Errorf("its own principal: %d %s", a.status, a.body)
	}
	if a := h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id); a.status != 204 {
		t.Errorf("DELETE: %d", a.status)
	}
	if a := h.do("POST", "/mcp/s", call, "Mcp-Session-Id", id); a.status != 404 {
		t.Errorf("after DELETE: %d", a.status)
	}
}

func TestSessionCaps(t *testing.T) {
	t.Parallel()
	h := open(t, Options{Sessions: 3, SessionsPerPrincipal: 2})
	h.session("2025-11-25")
	id := h.session("2025-11-25")
	a := h.do("POST", "/mcp/s", hello)
	if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "1503") {
		t.Fatalf("third session of one principal: %d %s", a.status, a.body)
	}
	h.session("2025-11-25", "Who", "bob")
	if a := h.do("POST", "/mcp/s", hello, "Who", "bob"); a.status != 503 {
		t.Fatalf("fourth session of all: %d", a.status)
	}
	h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", id)
	h.session("2025-11-25")
}

func TestIdsComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	for _, id := range []string{`1`, `"a\u0062"`, `9007199254740993`, `-5`, `""`} {
		a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":`+id+`,"method":"x/y","params":{"n":123456789012345678901234567890,"f":1.0}}`, "Mcp-Session-Id", s)
		want := `{"jsonrpc":"2.0","id":` + id + `,"result":{"echo":{"n":123456789012345678901234567890,"f":1.0}}}`
		if a.body != want {
			t.Errorf("got  %s\nwant %s", a.body, want)
		}
	}
}

// frame reads the next event of a stream.
func frame(t *testing.T, r *sse.Reader) sse.Event {
	t.Helper()
	e, err := r.Next()
	if err != nil {
		t.Fatalf("reading the stream: %v", err)
	}
	e.Data = bytes.Clone(e.Data)
	return e
}

func (h *house) stream(method, path, body string, header ...string) (*http.Response, *sse.Reader) {
	h.t.Helper()
	req, _ := http.NewRequest(method, h.url+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := doortest.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	return resp, sse.NewReader(resp.Body, 1<<20)
}

func TestAStreamThatBreaksIsResumedWhereItBroke(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	step := make(chan bool)
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		for i := range 3 {
			x.Notify("notifications/progress", fmt.Appendf(nil, `{"progress":%d}`, i))
			<-step
		}
		return Reply{Result: []byte(`{"done":true}`)}
	}
	resp, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"slow"}`, "Mcp-Session-Id", s)
	if prime := frame(t, events); prime.ID == "" || len(prime.Data) != 0 {
		t.Fatalf("a resumable stream begins with an id and no data, got %+v", prime)
	}
	first := frame(t, events)
	resp.Body.Close()
	step <- true
	step <- true
	step <- true
	if a := h.do("GET", "/mcp/s", "", "Mcp-Session-Id", s, "Last-Event-Id", first.ID, "Who", "bob"); a.status != 404 {
		t.Errorf("another principal resumes: %d", a.status)
	}
	_, events = h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", s, "Last-Event-Id", first.ID)
	for _, want := range []string{`"progress":1`, `"progress":2`, `"done":true`} {
		if e := frame(t, events); !strings.Contains(string(e.Data), want) {
			t.Errorf("got %s, want %s", e.Data, want)
		}
	}
	if _, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on after the answer: %v", err)
	}
}

func TestOneStandaloneStreamASession(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	resp, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", s)
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	if a := h.do("GET", "/mcp/s", "", "Mcp-Session-Id", s); a.status != 409 {
		t.Errorf("a second stream: %d, want 409", a.status)
	}
	h.door.Each(func(s *Session) bool { s.Notify("notifications/tools/list_changed", nil); return true })
	e := frame(t, events)
	if !strings.Contains(string(e.Data), "list_changed") {
		t.Errorf("got %s", e.Data)
	}
	resp.Body.Close()
	h.door.Each(func(s *Session) bool { s.Notify("notifications/missed", nil); return true })
	_, events = h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", s, "Last-Event-Id", e.ID)
	if got := frame(t, events); !strings.Contains(string(got.Data), "missed") {
		t.Errorf("got %s", got.Data)
	}
	h.do("DELETE", "/mcp/s", "", "Mcp-Session-Id", s)
	if _, err := events.Next(); err == nil {
		t.Error("the stream outlives its session")
	}
}

func TestOnlyTheAskedClientAnswersAndOnce(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		r, err := x.Ask(ctx, "elicitation/create", []byte(`{"message":"?"}`))
		if err != nil {
			return Reply{Error: errNoSuchMethod}
		}
		return Reply{Result: r.Result}
	}
	_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"asks"}`, "Mcp-Session-Id", s)
	frame(t, events)
	ask, err := wire.Parse(frame(t, events).Data, wire.FromServer)
	if err != nil || ask.Method != "elicitation/create" {
		t.Fatalf("%+v %v", ask, err)
	}
	respond := func(value string, header ...string) int {
		return h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":`+string(ask.ID)+`,"result":{"v":"`+value+`"}}`, header...).status
	}
	other := h.session("2025-11-25", "Who", "bob")
	respond("stolen", "Mcp-Session-Id", other, "Who", "bob")
	if got := respond("stolen", "Mcp-Session-Id", s, "Who", "bob"); got != 404 {
		t.Errorf("another principal answers: %d", got)
	}
	respond("mine", "Mcp-Session-Id", s)
	respond("again", "Mcp-Session-Id", s)
	if e := frame(t, events); !strings.Contains(string(e.Data), `{"v":"mine"}`) {
		t.Errorf("got %s", e.Data)
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	started, ended := make(chan bool, 2), make(chan error, 2)
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		started <- true
		<-ctx.Done()
		ended <- ctx.Err()
		return Reply{None: true}
	}
	s := h.session("2025-11-25")
	done := make(chan answer)
	go func() {
		done <- h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":"c1","method":"slow"}`, "Mcp-Session-Id", s)
	}()
	<-started
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":"c1","method":"slow"}`, "Mcp-Session-Id", s); a.status != 400 {
		t.Errorf("an id in flight is used again: %d", a.status)
	}
	other := h.session("2025-11-25", "Who", "bob")
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c1"}}`
	h.do("POST", "/mcp/s", cancel, "Mcp-Session-Id", other, "Who", "bob")
	select {
	case <-ended:
		t.Fatal("another session cancelled the request")
	case <-time.After(50 * time.Millisecond):
	}
	h.do("POST", "/mcp/s", cancel, "Mcp-Session-Id", s)
	<-ended
	if a := <-done; a.status != 202 || a.body != "" {
		t.Errorf("a cancelled request is answered: %d %q", a.status, a.body)
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func TestModernHeadersRepeatTheBody(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	good := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "t"}
	body := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t",` + modernMeta + `}}`
	with := func(i int, v string) []string {
		out := append([]string(nil), good...)
		out[i] = v
		return out
	}
	tests := []struct {
		name   string
		body   string
		header []string
		status int
		code   string
	}{
		{"all equal", body, good, 200, `"result"`},
		{"encoded name", body, with(5, "=?base64?dA==?="), 200, `"result"`},
		{"session id is ignored", body, append(with(5, "t"), "Mcp-Session-Id", "zzzzzzzzzzzz"), 200, `"result"`},
		{"other method", body, with(3, "ping"), 400, "-32020"},
		{"method in capitals", body, with(3, "TOOLS/CALL"), 400, "-32020"},
		{"other name", body, with(5, "u"), 400, "-32020"},
		{"bad base64", body, with(5, "=?base64?dA?="), 400, "-32020"},
		{"no version header", body, good[2:], 400, "-32020"},
		{"legacy header, modern body", body, with(1, "2025-11-25"), 400, "-32020"},
		{"modern header, no meta", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}}`, good, 400, "-32602"},
		{"unknown modern version", strings.Replace(body, "2026-07-28", "2027-01-01", 1), with(1, "2027-01-01"), 400, "-32022"},
		{"version that is no date", strings.Replace(body, "2026-07-28", "v999.0.0", 1), with(1, "v999.0.0"), 400, "-32022"},
		{"removed method", strings.Replace(body, "tools/call", "logging/setLevel", 1), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "logging/setLevel"}, 404, "-32601"},
		{"a response", `{"jsonrpc":"2.0","id":5,"result":{}}`, good, 400, "-32600"},
	}
	for _, tt := range tests {
		a := h.do("POST", "/mcp/s", tt.body, tt.header...)
		if a.status != tt.status || !strings.Contains(a.body, tt.code) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, a.status, a.body, tt.status, tt.code)
		}
	}
}

func TestBatchesAreOf20250326Alone(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	batch := `[{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}},{"jsonrpc":"2.0","method":"notifications/note"},{"jsonrpc":"2.0","id":"b","method":"tools/list"}]`
	s := h.session("2025-03-26")
	a := h.do("POST", "/mcp/s", batch, "Mcp-Session-Id", s)
	want := `[{"jsonrpc":"2.0","id":1,"result":{"echo":{}}},{"jsonrpc":"2.0","id":"b","result":{"tools":[]}}]`
	if a.status != 200 || a.body != want {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := h.do("POST", "/mcp/s", `[{"jsonrpc":"2.0","method":"notifications/note"}]`, "Mcp-Session-Id", s); a.status != 202 {
		t.Errorf("only notifications: %d", a.status)
	}
	if a := h.do("POST", "/mcp/s", `[`+hello+`]`, "Mcp-Session-Id", s); a.status != 400 {
		t.Errorf("initialize in a batch: %d", a.status)
	}
	if a := h.do("POST", "/mcp/s", batch, "Mcp-Session-Id", newSessionID()); a.status != 404 {
		t.Errorf("a batch in an unknown session: %d", a.status)
	}
	later := h.session("2025-06-18")
	if a := h.do("POST", "/mcp/s", batch, "Mcp-Session-Id", later); a.status != 400 {
		t.Errorf("a batch in 2025-06-18: %d", a.status)
	}
}

func TestTheOldTransportAnswersOnItsStream(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	_, events := h.stream("GET", "/sse/s", "")
	where := string(frame(t, events).Data)
	if !strings.HasPrefix(where, "/messages/s?session_id=") {
		t.Fatalf("endpoint %q", where)
	}
	if a := h.do("POST", where, hello, "Who", "bob"); a.status != 404 {
		t.Errorf("another principal posts: %d", a.status)
	}
	if a := h.do("POST", where, hello); a.status != 202 {
		t.Errorf("POST: %d", a.status)
	}
	if e := frame(t, events); !strings.Contains(string(e.Data), `"id":0,"result"`) {
		t.Errorf("got %s", e.Data)
	}
	h.do("POST", where, `{"jsonrpc":"2.0","id":2,"method":"x/y","params":{"a":1}}`)
	if e := frame(t, events); !strings.Contains(string(e.Data), `"id":2,"result":{"echo":{"a":1}}`) {
		t.Errorf("got %s", e.Data)
	}
	h.do("POST", where, hello)
	if e := frame(t, events); !strings.Contains(string(e.Data), `-32600`) {
		t.Errorf("a second initialize: %s", e.Data)
	}
	later := make(chan bool)
	h.serve = func(_ context.Context, x *Exchange) Reply {
		if x.Method == "x/later" {
			return Reply{Result: []byte(`{}`)}
		}
		<-later
		return Reply{Result: []byte(`{"left":` + strconv.FormatBool(x.Left()) + `}`)}
	}
	h.do("POST", where, `{"jsonrpc":"2.0","id":3,"method":"x/y"}`)
	h.do("POST", where, `{"jsonrpc":"2.0","id":4,"method":"x/later"}`)
	frame(t, events)
	close(later)
	if e := frame(t, events); !strings.Contains(string(e.Data), `"left":false`) {
		t.Errorf("the client counts as gone after its POST has ended: %s", e.Data)
	}
}

func TestAStreamHeldForALimitedTimeIsPolled(t *testing.T) {
	t.Parallel()
	h := open(t, Options{StreamTime: 20 * time.Millisecond})
	s := h.session("2025-11-25")
	release := make(chan bool)
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		x.Notify("notifications/progress", []byte(`{}`))
		<-release
		return Reply{Result: []byte(`{"late":` + strconv.FormatBool(!x.Left()) + `}`)}
	}
	_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"slow"}`, "Mcp-Session-Id", s, "Accept", prefersStream)
	last := ""
	for {
		e, err := events.Next()
		if err != nil {
			break
		}
		last = e.ID
	}
	close(release)
	if got := h.poll(s, last); !strings.Contains(got, `"late":true`) {
		t.Errorf("got %s", got)
	}
}

// prefersStream makes a request that takes long one with a stream, whether or not the Handler
// has sent a message by then.
const prefersStream = "text/event-stream, application/json;q=0.5"

// poll resumes a stream behind an event, until it has brought the answer.
func (h *house) poll(session, last string) string {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		_, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", session, "Last-Event-Id", last)
		for e, err := events.Next(); err == nil; e, err = events.Next() {
			if last = e.ID; rawjson.Get(e.Data, "id") != nil {
				return string(e.Data)
			}
		}
	}
	h.t.Fatal("no answer")
	return ""
}

func TestASessionKeepsABoundedAmountForResumption(t *testing.T) {
	t.Parallel()
	s := newSession(newSessionID(), alice, "s", overStreamable, time.Now())
	big := bytes.Repeat([]byte("x"), 300<<10)
	for range 100 {
		l := s.openLog()
		for range 3 {
			l.put(big, 0)
		}
		l.end()
	}
	kept := 0
	for _, l := range s.logs {
		kept += l.bytes()
	}
	if kept > sessionBytes+logBytes || len(s.logs) > sessionStreams {
		t.Errorf("%d bytes in %d streams are kept", kept, len(s.logs))
	}
	if s.logOf(s.streams) == nil {
		t.Error("the newest stream is gone")
	}
}
