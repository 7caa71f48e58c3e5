package front

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

// A stream on a taken-over connection is announced as the last answer of that connection: a
// client that has read it to its end sends its next request on another one, and none fails.
func TestAStreamIsTheLastAnswerOfItsConnection(t *testing.T) {
	t.Parallel()
	ends := map[string]func(h *house, s *Session){
		"the log":     func(_ *house, s *Session) { s.main.end() },
		"the session": func(h *house, s *Session) { h.door.sessions.remove(s) },
		"the door":    func(h *house, _ *Session) { h.door.Close() },
	}
	for name, end := range ends {
		for _, path := range []string{"/mcp/s", "/sse/s"} {
			t.Run(name+", "+path, func(t *testing.T) {
				t.Parallel()
				h := open(t, Options{})
				header := http.Header{"Accept": {"text/event-stream"}}
				if path == "/mcp/s" {
					header.Set("Mcp-Session-Id", h.session("2025-11-25"))
				}
				client := &http.Client{Transport: &http.Transport{}}
				resp := h.get(client, path, header)
				if !resp.Close || resp.ContentLength != -1 {
					t.Errorf("close %v, length %d: %v", resp.Close, resp.ContentLength, resp.Header)
				}
				events := sse.NewReader(resp.Body, 1<<20)
				if path == "/sse/s" {
					frame(t, events)
				}
				s := h.door.only(t)
				h.eventually("the stream", s.Listening)
				end(h, s)
				if _, err := events.Next(); err != io.EOF {
					t.Errorf("the stream ends with %v", err)
				}
				resp.Body.Close()
				h.get(client, "/health", nil).Body.Close()
			})
		}
	}
}

// get sends a request, which must not use a connection again.
func (h *house) get(client *http.Client, path string, header http.Header) *http.Response {
	h.t.Helper()
	again := func(c httptrace.GotConnInfo) {
		if c.Reused {
			h.t.Error("the connection of the stream is used again")
		}
	}
	ctx := httptrace.WithClientTrace(h.t.Context(), &httptrace.ClientTrace{GotConn: again})
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.url+path, http.NoBody)
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

// The head of a stream on a taken-over connection has the fields that a strict client needs,
// each once.
func TestTheHeadOfATakenOverStream(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "GET /sse/s HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
	head, in := "", bufio.NewReader(c)
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		head += line
	}
	for _, field := range []string{"Connection: close", "Transfer-Encoding: chunked", "Content-Type: text/event-stream"} {
		if strings.Count(head, "\r\n"+field+"\r\n") != 1 {
			t.Errorf("no %q in %q", field, head)
		}
	}
}
