package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/sse"
)

// events starts a script on the HTTP+SSE transport of 2024-11-05, which has the legacy
// era alone.
func events(t *testing.T, name, era string) *script {
	return play(t, &script{t: t, name: name, kind: "sse", era: era, caps: allCaps})
}

// startEvents serves the script: GET opens the stream of a connection, whose first event
// names the address of its POSTs.
func (s *script) startEvents() {
	e := &eventScript{script: s, streams: make(map[string]*conn)}
	srv := httptest.NewServer(e)
	s.address = srv.URL
	s.t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
}

type eventScript struct {
	*script
	mu      sync.Mutex
	streams map[string]*conn // by the query of their POSTs
}

func (e *eventScript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		e.open(w, r)
		return
	}
	e.mu.Lock()
	c := e.streams[r.URL.RawQuery]
	e.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil || c == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	e.line(e.t.Context(), c, body)
}

func (e *eventScript) open(w http.ResponseWriter, r *http.Request) {
	var writing sync.Mutex
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	write := func(name string, data []byte) {
		writing.Lock()
		defer writing.Unlock()
		if ctx.Err() == nil {
			w.Write(sse.Append(nil, "", name, data))
			w.(http.Flusher).Flush()
		}
	}
	c := e.connect("", func(msg []byte) { write("", msg) }, cancel)
	defer e.gone(c)
	query := fmt.Sprintf("c=%d", c.n)
	e.mu.Lock()
	e.streams[query] = c
	e.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	write("endpoint", []byte("/?"+query))
	<-ctx.Done()
	writing.Lock() // nothing writes behind the end of the handler
	defer writing.Unlock()
}
