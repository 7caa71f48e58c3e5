package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// fakeWeb is a Streamable HTTP server of the legacy era, on a real socket,
// whose misbehaviour a test plugs in. It notes what it was asked.
type fakeWeb struct {
	*httptest.Server
	t       testing.TB
	session string // announced at initialize, "" for none

	// Hooks; a false return leaves the request to the ordinary behaviour.
	call   func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool // any POST
	stream func(w http.ResponseWriter, r *http.Request)                     // GET; nil: 405

	mu       sync.Mutex
	seen     []seen
	accepted int // TCP connections
}

// seen is one request as it arrived.
type seen struct {
	httpMethod string
	header     http.Header
	fakeMessage
	body string
}

func newFakeWeb(t testing.TB, change func(*fakeWeb)) *fakeWeb {
	t.Helper()
	f := &fakeWeb{t: t, session: "session-1"}
	if change != nil {
		change(f)
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.mu.Lock()
			f.accepted++
			f.mu.Unlock()
		}
	}
	f.Start()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *fakeWeb) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m fakeMessage
	if len(body) > 0 {
		if err := json.Unmarshal(body, &m); err != nil {
			f.t.Errorf("the server got %q", body)
		}
	}
	f.mu.Lock()
	f.seen = append(f.seen, seen{r.Method, r.Header.Clone(), m, string(body)})
	f.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		if f.stream == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		f.stream(w, r)
	case http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		f.post(w, r, m)
	}
}

func (f *fakeWeb) post(w http.ResponseWriter, r *http.Request, m fakeMessage) {
	if f.call != nil && f.call(w, r, m) {
		return
	}
	switch {
	case m.Method == methodInitialize:
		if f.session != "" {
			w.Header().Set(headerSession, f.session)
		}
		answerJSON(w, m.ID, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"web","version":"1"}}`)
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		answerJSON(w, m.ID, string(m.Params))
	}
}

// requests are those seen so far that match.
func (f *fakeWeb) requests(match func(seen) bool) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []seen
	for _, s := range f.seen {
		if match(s) {
			out = append(out, s)
		}
	}
	return out
}

func (f *fakeWeb) methods(method string) []seen {
	return f.requests(func(s seen) bool { return s.Method == method })
}

func (f *fakeWeb) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// server is the upstream for this web server.
func (f *fakeWeb) server(change ...func(*Definition, *Deps)) *Server {
	f.t.Helper()
	return webServer(f.t, f.URL+"/mcp", change...)
}

func webServer(t testing.TB, url string, change ...func(*Definition, *Deps)) *Server {
	t.Helper()
	def := Definition{Name: "web", Kind: KindHTTP, URL: url, AllowPrivate: true}
	deps := testDeps(t)
	for _, f := range change {
		f(&def, &deps)
	}
	s, err := New(def, deps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func answerJSON(w http.ResponseWriter, id json.RawMessage, result string) {
	writeJSON(w, http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// events starts an event stream, and returns what writes to it.
func events(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	write := func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		w.(http.Flusher).Flush()
	}
	write(": hello\n\n")
	return write
}

// modernWeb answers server/discover like a modern server, and leaves the rest
// to call.
func modernWeb(t testing.TB, call func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool) *fakeWeb {
	return newFakeWeb(t, func(f *fakeWeb) {
		f.session = ""
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method == methodDiscover {
				answerJSON(w, m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{}}`)
				return true
			}
			return call != nil && call(w, r, m)
		}
	})
}
