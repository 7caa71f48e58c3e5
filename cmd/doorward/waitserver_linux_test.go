package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
)

// waitServer is an MCP server of one era in the process of the test. Its tool wait answers when
// the test wants it to, and reports progress before if the client wants progress.
type waitServer struct {
	modern bool
	config string        // its entry in the configuration of the daemon
	over   chan struct{} // closed at the end of the test

	mu    sync.Mutex
	calls map[string]*waitCall // by the argument key
	keys  map[string]string    // by the id of the request in its session
}

// waitCall is one call of wait. The test closes release, and the server the others.
type waitCall struct {
	begun, cancelled, release, answered chan struct{}
	once                                sync.Once
}

func (c *waitCall) cancel() { c.once.Do(func() { close(c.cancelled) }) }

// wasCancelled reports whether the call has been cancelled until now.
func (c *waitCall) wasCancelled() bool {
	select {
	case <-c.cancelled:
		return true
	default:
		return false
	}
}

// call returns the call with a key, which may not have arrived.
func (s *waitServer) call(key string) *waitCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[key]
	if c == nil {
		c = &waitCall{begun: make(chan struct{}), cancelled: make(chan struct{}), release: make(chan struct{}), answered: make(chan struct{})}
		s.calls[key] = c
	}
	return c
}

// waitServers starts a server of each era and transport.
func waitServers(t *testing.T) map[string]*waitServer {
	t.Helper()
	all := make(map[string]*waitServer)
	for _, era := range []string{"legacy", "modern"} {
		stdio, web := newWaitServer(era), newWaitServer(era)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go stdio.accept(l)
		h := httptest.NewServer(web)
		t.Cleanup(func() { close(web.over); h.CloseClientConnections(); h.Close() })
		stdio.config = fmt.Sprintf("{command: fakemcp, args: [wire, %q], doorward: {sandbox: off, protocol: %s, instances: shared}}", l.Addr(), era)
		web.config = fmt.Sprintf("{url: %q, doorward: {allow_private: true, protocol: %s, instances: shared}}", h.URL, era)
		all[era+"-stdio"], all[era+"-http"] = stdio, web
	}
	return all
}

func newWaitServer(era string) *waitServer {
	return &waitServer{modern: era == "modern", calls: make(map[string]*waitCall), keys: make(map[string]string), over: make(chan struct{})}
}

// runWire is `fakemcp wire ADDR`: its standard input and output are those of a server at ADDR.
func runWire(args []string) error {
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(os.Stdout, c) // it ends with the connection
	}()
	_, err = io.Copy(c, os.Stdin)
	return err
}

// accept serves the connections of runWire.
func (s *waitServer) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.converse(c)
	}
}

func (s *waitServer) converse(c net.Conn) {
	defer c.Close()
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(c, text+"\n") // a client that has left hears nothing
	}
	for in := bufio.NewScanner(c); in.Scan(); {
		if q, ok := s.hear(in.Bytes(), c.RemoteAddr().String()); ok {
			go s.answer(q, c.RemoteAddr().String(), say, nil)
		}
	}
}

func (s *waitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	session := r.Header.Get("Mcp-Session-Id")
	q, ok := s.hear(body, session)
	if !ok {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if !s.modern && q.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", mailIDs.Add(1)))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(text string) {
		fmt.Fprintf(w, "data: %s\n\n", text)
		_ = http.NewResponseController(w).Flush() // a client that has left hears nothing
	}
	s.answer(q, session, say, r.Context().Done())
}

// hear reads one message of a session, or of a connection without one. It is false for a notification.
func (s *waitServer) hear(text []byte, session string) (q fakeRequest, ok bool) {
	if json.Unmarshal(text, &q) != nil || q.ID != nil {
		return q, q.ID != nil
	}
	var p struct{ RequestID raw }
	if json.Unmarshal(q.Params, &p) == nil && q.Method == "notifications/cancelled" {
		s.mu.Lock()
		key := s.keys[session+" "+string(p.RequestID)]
		s.mu.Unlock()
		s.call(key).cancel()
	}
	return q, false
}

// answer serves a request. gone is the end of its stream.
func (s *waitServer) answer(q fakeRequest, session string, say func(string), gone <-chan struct{}) {
	complete := ""
	if s.modern {
		complete = `"resultType":"complete",`
	}
	result := func(text string) {
		say(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{` + complete + text + `}}`)
	}
	var p struct {
		ProtocolVersion string
		Arguments       struct{ Key string }
		Meta            struct{ ProgressToken raw } `json:"_meta"`
	}
	_ = json.Unmarshal(q.Params, &p) // on an error the key is empty
	switch q.Method {
	case "initialize":
		result(`"protocolVersion":` + quote(p.ProtocolVersion) + `,"capabilities":{"tools":{}},"serverInfo":{"name":"wait","version":"1"}`)
	case "server/discover":
		result(`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"`)
	case "tools/list":
		cache := ""
		if s.modern {
			cache = `,"ttlMs":0,"cacheScope":"private"`
		}
		result(`"tools":[{"name":"wait","inputSchema":{"type":"object"}}]` + cache)
	case "tools/call":
		s.mu.Lock()
		s.keys[session+" "+string(q.ID)] = p.Arguments.Key
		s.mu.Unlock()
		c := s.call(p.Arguments.Key)
		if token := string(p.Meta.ProgressToken); token != "" {
			say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`)
		}
		close(c.begun)
		if s.pauses(c, gone) {
			result(`"content":[{"type":"text","text":` + quote("answer of "+p.Arguments.Key) + `}]`)
			close(c.answered)
		}
	default:
		say(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":{"code":-32601,"message":"Method not found"}}`)
	}
}

// pauses waits, and reports whether the call is to be answered. In the modern era the end of its
// stream cancels it.
func (s *waitServer) pauses(c *waitCall, gone <-chan struct{}) bool {
	if !s.modern {
		gone = nil
	}
	select {
	case <-gone:
		c.cancel()
	case <-c.release:
		return true
	case <-c.cancelled:
	case <-s.over:
	}
	return false
}
