package relay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/wire"
)

// reply is the answer to one POST while it comes, or a stream.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	msgs   chan string // every message, in order; closed at the end
	stop   context.CancelFunc
	before []string // what end skipped
}

// send makes one HTTP request and reads its answer in the background.
func (h *house) send(method, path, who, body string, header ...string) *reply {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	name, scope, _ := strings.Cut(who, " ")
	req.Header.Set("Who", name)
	req.Header.Set("Scope", scope)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	r := &reply{t: h.t, status: resp.StatusCode, header: resp.Header, msgs: make(chan string, 4096), stop: cancel}
	h.t.Cleanup(cancel)
	go r.read(resp)
	return r
}

// client keeps no connection, so that what a test leaves open is its own.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (r *reply) read(resp *http.Response) {
	defer close(r.msgs)
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(resp.Body)
		if len(body) > 0 {
			r.msgs <- string(body)
		}
		return
	}
	for events := sse.NewReader(resp.Body, 1<<22); ; {
		ev, err := events.Next()
		if err != nil {
			return
		}
		if len(ev.Data) > 0 {
			r.msgs <- string(ev.Data)
		}
	}
}

// next is the next message; it fails the test when none comes.
func (r *reply) next() string {
	r.t.Helper()
	select {
	case m, ok := <-r.msgs:
		if !ok {
			r.t.Fatal("the stream ended")
		}
		return m
	case <-time.After(40 * time.Second):
		r.t.Fatal("no message came")
	}
	return ""
}

// nextOf skips to the next message of a method.
func (r *reply) nextOf(method string) string {
	r.t.Helper()
	for {
		if m := r.next(); field(m, "method") == `"`+method+`"` {
			return m
		}
	}
}

// silent fails the test if a message comes within 50 ms. A later message is not
// noticed, so it is used after an event that came for certain.
func (r *reply) silent() {
	r.t.Helper()
	select {
	case m, ok := <-r.msgs:
		if ok {
			r.t.Errorf("unexpected: %s", m)
		}
	case <-time.After(50 * time.Millisecond):
	}
}

// end reads to the final answer; what came before it is kept in before.
func (r *reply) end() string {
	r.t.Helper()
	for {
		m := r.next()
		if field(m, "method") == "" {
			return m
		}
		r.before = append(r.before, m)
	}
}

// field is a raw value of a message, "" when it is not there.
func field(msg string, path ...string) string { return string(rawjson.GetPath([]byte(msg), path...)) }

func text(msg string, path ...string) string {
	s, _ := wire.Text(rawjson.GetPath([]byte(msg), path...))
	return s
}

// session is a legacy client.
type session struct {
	*house
	who, path, id, version string
	name                   string       // what it calls itself; empty: tester
	hello                  string       // the answer to initialize
	last                   atomic.Int64 // callers may begin requests at the same time
}

const elicits = `{"elicitation":{}}`

// legacy opens a session of revision 2025-11-25 with the given capabilities.
func (h *house) legacy(path, who, caps string) *session {
	h.t.Helper()
	return h.named("", path, who, caps)
}

// named is a client that gives itself a name.
func (h *house) named(name, path, who, caps string) *session {
	h.t.Helper()
	s := &session{house: h, who: who, path: path, version: "2025-11-25", name: name}
	r := s.hello0(caps)
	s.hello, s.id = r.end(), r.header.Get("Mcp-Session-Id")
	if field(s.hello, "result") == "" || s.id == "" {
		h.t.Fatalf("initialize on %s as %s: %d %s", path, who, r.status, s.hello)
	}
	return s
}

func (s *session) hello0(caps string) *reply {
	return s.send("POST", s.path, s.who, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"9"},"future":1.0}}`, s.version, caps, cmp.Or(s.name, "tester")))
}

func (s *session) post(body string) *reply {
	s.t.Helper()
	return s.send("POST", s.path, s.who, body, "Mcp-Session-Id", s.id, "Mcp-Protocol-Version", s.version)
}

// begin sends a request with an id of its own.
func (s *session) begin(method, params string) *reply {
	s.t.Helper()
	return s.post(request(fmt.Sprint(s.last.Add(1)), method, params))
}

// call sends a request and returns its final answer.
func (s *session) call(method, params string) string {
	s.t.Helper()
	return s.begin(method, params).end()
}

func (s *session) tool(name, args string) string {
	s.t.Helper()
	return s.call("tools/call", `{"name":"`+name+`","arguments":{`+args+`}}`)
}

func (s *session) notify(method, params string) {
	s.t.Helper()
	r := s.post(notification(method, params))
	if r.status != http.StatusAccepted {
		s.t.Errorf("%s: %d", method, r.status)
	}
}

// listen opens the standalone stream.
func (s *session) listen() *reply {
	s.t.Helper()
	r := s.send("GET", s.path, s.who, "", "Mcp-Session-Id", s.id, "Accept", "text/event-stream")
	if r.status != 200 {
		s.t.Fatalf("GET: %d", r.status)
	}
	return r
}

// answer answers a question that came on a stream.
func (s *session) answer(question, result string) {
	s.t.Helper()
	s.post(`{"jsonrpc":"2.0","id":` + field(question, "id") + `,"result":` + result + `}`)
}

func (s *session) end() {
	s.send("DELETE", s.path, s.who, "", "Mcp-Session-Id", s.id)
}

func request(id, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func notification(method, params string) string {
	return strings.Replace(request("0", method, params), `"id":0,`, "", 1)
}

// modern is a client of 2026-07-28.
type modern struct {
	*house
	who, path string
	caps      string
	meta      []rawjson.Edit // further _meta
	header    []string
	last      int
}

func (h *house) modern(path, who string) *modern {
	return &modern{house: h, who: who, path: path, caps: `{}`}
}

// begin sends a request with everything that the era wants in it.
func (m *modern) begin(method, params string, header ...string) *reply {
	m.t.Helper()
	m.last++
	edits := append([]rawjson.Edit{{Key: wire.MetaVersion, Value: []byte(`"2026-07-28"`)}, {Key: wire.MetaCapabilities, Value: []byte(m.caps)}}, m.meta...)
	p := rawjson.SetIn([]byte(params), "_meta", edits...)
	h := append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}, m.header...)
	for _, key := range []string{"name", "uri", "taskId"} {
		if v, ok := rawjson.GetString(p, key); ok {
			h = append(h, "Mcp-Name", protocol.EncodeHeader(v))
		}
	}
	return m.send("POST", m.path, m.who, request(fmt.Sprint(m.last), method, string(p)), append(h, header...)...)
}

func (m *modern) call(method, params string, header ...string) string {
	m.t.Helper()
	return m.begin(method, params, header...).end()
}

func (m *modern) tool(name, args string, header ...string) string {
	m.t.Helper()
	return m.call("tools/call", `{"name":"`+name+`","arguments":{`+args+`}}`, header...)
}

// subscribe opens a listen and returns it behind its acknowledgement.
func (m *modern) subscribe(filter string) (r *reply, ack string) {
	m.t.Helper()
	r = m.begin("subscriptions/listen", `{"notifications":`+filter+`}`)
	ack = r.next()
	if text(ack, "method") != "notifications/subscriptions/acknowledged" {
		m.t.Fatalf("the first message of a listen: %s", ack)
	}
	return r, ack
}

// names lists the member key of each entry of a list result.
func names(result, list, key string) []string {
	var out []string
	for e := range rawjson.Elements(rawjson.GetPath([]byte(result), "result", list)) {
		n, _ := rawjson.GetString(e, key)
		out = append(out, n)
	}
	return out
}

func join(parts []string) string { return strings.Join(parts, " ") }

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func code(msg string) string { return field(msg, "error", "code") }

// aimed is a request on the route of one server.
func aimed(t testing.TB, server, method, params string) target {
	t.Helper()
	asked, err := resolve.Request(server, method, wire.IntID(1), []byte(params))
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	return target{Target: asked}
}
