package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRecord starts an MCP server over HTTP that writes every byte which reaches
// it to FILE, and puts canary-upstream wherever a server can say something that
// is no part of a message. What it speaks depends on the path:
//
//	/legacy   a session; answers to calls are event streams full of what no client should see
//	/modern   2026-07-28
//	/events   2024-11-05
//	/broken   as /legacy, but every call fails with a page
func cmdRecord(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "record VAR FILE")
	f, err := os.OpenFile(ts.MkAbs(args[1]), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	ts.Check(err)
	r := &recorder{file: f, over: make(chan struct{}), said: make(chan string, 64)}
	s := httptest.NewUnstartedServer(r)
	s.Listener = recorded{s.Listener, r}
	s.Start()
	ts.Setenv(args[0], s.URL)
	ts.Defer(func() {
		close(r.over)
		s.CloseClientConnections()
		s.Close()
		ts.Check(f.Close())
	})
}

// recorder is the server and its file.
type recorder struct {
	mu   sync.Mutex
	file *os.File
	over chan struct{}
	said chan string // for the stream of /events
}

type recorded struct {
	net.Listener
	r *recorder
}

func (l recorded) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return recordedConn{c, l.r}, nil
}

type recordedConn struct {
	net.Conn
	r *recorder
}

func (c recordedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if _, werr := c.r.file.Write(b[:n]); werr != nil {
		return n, werr
	}
	return n, err
}

// tell sets headers that must not be forwarded.
func tell(h http.Header) {
	for _, name := range []string{"Set-Cookie", "WWW-Authenticate", "Proxy-Authenticate", "Server", "Location", "Link", "Refresh",
		"X-Upstream", "Via", "Clear-Site-Data", "Access-Control-Allow-Origin", "Content-Security-Policy", "Keep-Alive"} {
		h.Set(name, "canary-upstream")
	}
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tell(w.Header())
	var q fakeRequest
	body, err := io.ReadAll(r.Body)
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &q)
	}
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case r.Method == http.MethodGet:
		rec.stream(w, r)
	case r.URL.Path == "/events":
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.URL.Path == "/post":
		w.WriteHeader(http.StatusAccepted)
		if q.ID != nil {
			rec.said <- rec.reply(q)
		}
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		rec.answer(w, r, q)
	}
}

// stream answers a GET: with a stream at /events, elsewhere with 405.
func (rec *recorder) stream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/events" {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(text string) {
		fmt.Fprint(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	say("event: endpoint\ndata: /post?session_id=upstream-1\n\n")
	for {
		select {
		case text := <-rec.said:
			say(noise + "data: " + text + "\n\n")
		case <-rec.over:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// noise is everything that an event stream can say beside a message.
const noise = ": canary-upstream\nretry: 4711\n\nevent: canary-upstream\ndata: canary-upstream\n\n" +
	"event: endpoint\ndata: http://canary-upstream.example/\n\ncanary-upstream: x\nid: canary-upstream\nevent: message\n"

func (rec *recorder) reply(q fakeRequest) string {
	result := `{"content":[{"type":"text","text":"fine"}]}`
	switch q.Method {
	case "initialize":
		version := "2025-11-25"
		if strings.Contains(string(q.Params), "2024-11-05") {
			version = "2024-11-05"
		}
		result = `{"protocolVersion":"` + version + `","capabilities":{"tools":{}},"serverInfo":{"name":"recorder","version":"1"}}`
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
	case "tools/list":
		result = `{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}}]}`
	}
	return `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`
}

func (rec *recorder) answer(w http.ResponseWriter, r *http.Request, q fakeRequest) {
	call := q.Method == "tools/call"
	switch {
	case q.Method == "server/discover" && r.URL.Path != "/modern":
		w.WriteHeader(http.StatusBadRequest)
	case q.Method == "initialize" && r.URL.Path == "/modern":
		w.WriteHeader(http.StatusNotFound)
	case call && r.URL.Path == "/broken":
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<h1>canary-upstream</h1>")
	case call:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, noise+"data: "+rec.reply(q)+"\n\n")
	default:
		if q.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "upstream-session")
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, rec.reply(q))
	}
}
