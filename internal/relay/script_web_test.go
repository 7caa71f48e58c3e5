package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/wire"
)

// startWeb serves the script over Streamable HTTP in both eras.
func (s *script) startWeb() {
	w := &webScript{script: s, sessions: make(map[string]*webSession)}
	w.modern = s.connect("", func([]byte) {}, func() {})
	srv := httptest.NewServer(w)
	s.address = srv.URL
	s.t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
}

type webScript struct {
	*script
	modern *conn

	mu       sync.Mutex
	sessions map[string]*webSession
	made     int
}

// webSession is a legacy session: what is said outside of requests waits for
// its GET stream.
type webSession struct {
	*conn
	out chan []byte
}

func (w *webScript) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.Method {
	case http.MethodGet:
		w.get(rw, r)
	case http.MethodDelete:
		w.forget(r.Header.Get("Mcp-Session-Id"))
	default:
		w.post(rw, r, body)
	}
}

// forget ends a session, or all with "*".
func (w *webScript) forget(id string) {
	w.mu.Lock()
	var ended []*webSession
	for k, ws := range w.sessions {
		if k == id || id == "*" {
			delete(w.sessions, k)
			ended = append(ended, ws)
		}
	}
	w.mu.Unlock()
	for _, ws := range ended {
		w.gone(ws.conn)
	}
}

func (w *webScript) session(id string) *webSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[id]
}

func (w *webScript) get(rw http.ResponseWriter, r *http.Request) {
	ws := w.session(r.Header.Get("Mcp-Session-Id"))
	if ws == nil {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
	for {
		select {
		case msg := <-ws.out:
			rw.Write(sse.Append(nil, "", "", msg))
			rw.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		case <-ws.done:
			return
		}
	}
}

func (w *webScript) post(rw http.ResponseWriter, r *http.Request, body []byte) {
	m, err := wire.Parse(body, wire.FromClient)
	if err != nil {
		w.t.Errorf("server %s was sent %q: %v", w.name, body, err)
	}
	c := w.modern
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case m.Method == "initialize":
		c = w.begin(rw)
	case id != "":
		ws := w.session(id)
		if ws == nil {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		c = ws.conn
	case rawjson.GetPath(m.Params, "_meta", wire.MetaVersion) == nil && m.Kind != wire.Notification:
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	q := &query{conn: c, Message: m, raw: string(body), header: r.Header, ctx: r.Context()}
	if w.status != nil && w.status(q) != 0 {
		rw.WriteHeader(w.status(q))
		return
	}
	if m.Kind != wire.Request {
		w.take(q)
		rw.WriteHeader(http.StatusAccepted)
		return
	}
	a := &webAnswer{rw: rw}
	q.emit = a.emit
	if c != w.modern {
		q.ctx = w.t.Context() // in the legacy era a closed stream cancels nothing
	}
	c.in(q)
	defer c.out(q)
	w.take(q)
	a.finish()
}

func (w *webScript) begin(rw http.ResponseWriter) *conn {
	w.mu.Lock()
	w.made++
	id := fmt.Sprintf("session-%d", w.made)
	w.mu.Unlock()
	ws := &webSession{out: make(chan []byte, 256)}
	ws.conn = w.connect(id, func(msg []byte) { ws.out <- msg }, func() { w.forget(id) })
	w.mu.Lock()
	w.sessions[id] = ws
	w.mu.Unlock()
	rw.Header().Set("Mcp-Session-Id", id)
	return ws.conn
}

// webAnswer is one JSON body if the answer comes first, else an event stream.
type webAnswer struct {
	rw     http.ResponseWriter
	mu     sync.Mutex
	stream bool
	over   bool
}

func (a *webAnswer) emit(msg []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	m, _ := wire.Parse(msg, wire.FromServer)
	if m.Kind == wire.Response && !a.stream {
		a.rw.Header().Set("Content-Type", "application/json")
		a.rw.Write(msg)
		a.over = true
		return
	}
	if !a.stream {
		a.stream = true
		a.rw.Header().Set("Content-Type", "text/event-stream")
	}
	a.rw.Write(sse.Append(nil, "", "", msg))
	a.rw.(http.Flusher).Flush()
}

func (a *webAnswer) finish() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
}
