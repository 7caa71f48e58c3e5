//go:build linux && changes

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// stream answers r with an event stream for a peer until the client or the server ends it.
func (s *changeServer) stream(w http.ResponseWriter, r *http.Request, p *changePeer, begin func(write func(event, text string))) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var mu sync.Mutex
	over := false
	w.Header().Set("Content-Type", "text/event-stream")
	write := func(event, text string) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
		_ = http.NewResponseController(w).Flush() // a client that has left hears nothing
	}
	s.mu.Lock()
	p.say, p.end = func(text string) { write("message", text) }, cancel
	s.peers[p] = true
	_ = http.NewResponseController(w).Flush() // before a change is reported
	s.mu.Unlock()
	if begin != nil {
		begin(write)
	}
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.say = nil
	delete(s.peers, p)
	mu.Lock() // nothing writes behind the end of the handler
	defer mu.Unlock()
	over = true
}

// serveStreamable serves Streamable HTTP of the server's era.
func (s *changeServer) serveStreamable(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var q fakeRequest
	_ = json.Unmarshal(body, &q) // on an error the method is empty
	if s.modern {
		s.serveModern(w, r, q, body)
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	p := s.sessions[id]
	if q.Method == "initialize" {
		p, id = &changePeer{}, fmt.Sprint("session-", mailIDs.Add(1))
		s.sessions[id] = p
	}
	s.mu.Unlock()
	switch {
	case p == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.stream(w, r, p, nil)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.sessions, id)
		s.mu.Unlock()
	default:
		w.Header().Set("Mcp-Session-Id", id)
		answerJSON(w, s.hear(p, body))
	}
}

func (s *changeServer) serveModern(w http.ResponseWriter, r *http.Request, q fakeRequest, body []byte) {
	p := &changePeer{listens: make(map[string]obj)}
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case q.Method == "subscriptions/listen":
		s.stream(w, r, p, func(func(event, text string)) { s.hear(p, body) })
	default:
		answerJSON(w, s.hear(p, body))
	}
}

// answerJSON writes a JSON-RPC answer; empty: there is none.
func answerJSON(w http.ResponseWriter, text string) {
	if text == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text) // a client that has left hears nothing
}

// serveSSE serves HTTP+SSE of 2024-11-05.
func (s *changeServer) serveSSE(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p, id := &changePeer{}, fmt.Sprint("c=", mailIDs.Add(1))
		s.stream(w, r, p, func(write func(event, text string)) {
			s.mu.Lock()
			s.sessions[id], p.replies = p, func(text string) { write("message", text) }
			s.mu.Unlock()
			write("endpoint", "/?"+id)
		})
		return
	}
	s.mu.Lock()
	p := s.sessions[r.URL.RawQuery]
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if p == nil || err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if text := s.hear(p, body); text != "" {
		p.replies(text)
	}
}
