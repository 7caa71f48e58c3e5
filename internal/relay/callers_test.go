package relay

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	doorward "github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/wire"
)

// caller is a client of one era on one transport and one route. It sends what no
// library sends, and keeps every byte that comes back.
type caller interface {
	// say sends one message, with an id of its own or without one, and returns when
	// whatever is answered to it has been heard.
	say(method, params string, id bool)
	// heard is everything that has come so far.
	heard() string
}

// line is what all callers have in common.
type line struct {
	h     *house
	route string // "" or a server's name
	era   string // a revision
	caps  string
	last  int

	mu  sync.Mutex
	got bytes.Buffer
	new *sync.Cond // a message has come
	ids map[string]bool

	answer  func(body string) // to a question of the server; nil: there is no way
	pending sync.WaitGroup
}

func newLine(h *house, route, era, caps string) *line {
	l := &line{h: h, route: route, era: era, caps: caps, ids: make(map[string]bool)}
	l.new = sync.NewCond(&l.mu)
	return l
}

func (l *line) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got.String()
}

// hear keeps one message.
func (l *line) hear(msg []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got.Write(append(msg, '\n'))
	if rawjson.Get(msg, "method") == nil {
		l.ids[string(rawjson.Get(msg, "id"))] = true
	}
	if string(rawjson.Get(msg, "method")) == `"notifications/subscriptions/acknowledged"` {
		l.ids[string(rawjson.GetPath(msg, "params", "_meta", wire.MetaSubscription))] = true
	}
	l.new.Broadcast()
	if id := rawjson.Get(msg, "id"); id != nil && rawjson.Get(msg, "method") != nil && l.answer != nil {
		l.pending.Go(func() { l.answer(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{"action":"decline"}}`) })
	}
}

// answered waits for the answer to a request. An error without an id answers too.
func (l *line) answered(id string) {
	l.h.t.Helper()
	stop := time.AfterFunc(20*time.Second, l.new.Broadcast)
	defer stop.Stop()
	end := time.Now().Add(20 * time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ids[id] && !l.ids[""] && time.Now().Before(end) {
		l.new.Wait()
	}
	if !l.ids[id] && !l.ids[""] {
		l.h.t.Errorf("request %s was never answered", id)
	}
	delete(l.ids, "")
}

func (l *line) modern() bool { return protocol.IsModernVersion(l.era) }

// message makes the text of one message, with what the era wants in it.
func (l *line) message(method, params string, id bool) (text, number string) {
	if l.modern() {
		caps := []byte(l.caps)
		if own := rawjson.GetPath([]byte(params), "_meta", wire.MetaCapabilities); own != nil {
			caps = own
		}
		params = string(rawjson.SetIn([]byte(params), "_meta", rawjson.Edit{Key: wire.MetaVersion, Value: rawjson.AppendQuote(nil, l.era)},
			rawjson.Edit{Key: wire.MetaCapabilities, Value: caps}))
	}
	if params != "" {
		params = `,"params":` + params
	}
	if id {
		l.last++
		number = fmt.Sprint(l.last)
		return `{"jsonrpc":"2.0","id":` + number + `,"method":` + string(rawjson.AppendQuote(nil, method)) + params + `}`, number
	}
	return `{"jsonrpc":"2.0","method":` + string(rawjson.AppendQuote(nil, method)) + params + `}`, ""
}

func (l *line) hello() string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"t","version":"1"}}}`, l.era, l.caps)
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// streamable speaks Streamable HTTP in either era.
type streamable struct {
	*line
	http    *http.Client
	session string
}

// overHTTP opens a session in the legacy era; the modern one has none.
func overHTTP(h *house, route, era, caps string) caller {
	s := &streamable{line: newLine(h, route, era, caps), http: plainHTTP(h, nil)}
	if s.modern() {
		return s
	}
	resp := s.post(s.hello(), nil)
	s.session = resp.Get("Mcp-Session-Id")
	if s.session == "" {
		h.t.Fatalf("no session on /mcp/%s: %s", route, s.heard())
	}
	s.post(initialized, nil)
	s.answer = func(body string) { s.post(body, nil) }
	h.t.Cleanup(s.pending.Wait)
	follow(h, s.line, s.http, s.request(http.MethodGet, doorward.Path(route), ""))
	return s
}

// plainHTTP keeps its connections until the test ends.
func plainHTTP(h *house, dial func(context.Context, string, string) (net.Conn, error)) *http.Client {
	t := &http.Transport{DialContext: dial}
	h.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func (s *streamable) request(method, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(s.h.t.Context(), method, s.h.url+path, strings.NewReader(body))
	if err != nil {
		s.h.t.Fatal(err)
	}
	req.Header.Set("Who", "uid:1000")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		req.Header.Set("Accept", "text/event-stream")
	}
	if s.session != "" {
		req.Header.Set("Mcp-Session-Id", s.session)
		req.Header.Set("Mcp-Protocol-Version", s.era)
	}
	return req
}

// post sends one message and hears its answer to the end.
func (s *streamable) post(body string, header map[string]string) http.Header {
	req := s.request(http.MethodPost, doorward.Path(s.route), body)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	resp, err := s.http.Do(req.WithContext(ctx))
	if err != nil {
		s.h.failed(err)
		return nil
	}
	defer resp.Body.Close()
	read(resp, func(msg []byte) bool {
		s.hear(msg)
		return string(rawjson.Get(msg, "method")) != `"notifications/subscriptions/acknowledged"` // a listen stays open
	})
	return resp.Header
}

// failed reports an error of a client, unless the test has ended.
func (h *house) failed(err error) {
	if h.t.Context().Err() == nil {
		h.t.Error(err)
	}
}

// read gives each message of an answer to f until f returns false.
func read(resp *http.Response, f func([]byte) bool) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		if body, _ := io.ReadAll(resp.Body); len(body) > 0 {
			f(body)
		}
		return
	}
	for events := sse.NewReader(resp.Body, 1<<22); ; {
		ev, err := events.Next()
		if err != nil || len(ev.Data) > 0 && !f(bytes.Clone(ev.Data)) {
			return
		}
	}
}

// follow hears a stream in the background, and ends with the test.
func follow(h *house, l *line, c *http.Client, req *http.Request) {
	resp, err := c.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		h.t.Fatalf("the stream was not opened: %v %v", resp, err)
	}
	var done sync.WaitGroup
	done.Go(func() { read(resp, func(msg []byte) bool { l.hear(msg); return true }) })
	h.t.Cleanup(func() { resp.Body.Close(); done.Wait() })
}

func (s *streamable) say(method, params string, id bool) {
	body, _ := s.message(method, params, id)
	header := map[string]string{}
	if s.modern() {
		header["Mcp-Protocol-Version"], header["Mcp-Method"] = s.era, strings.TrimSpace(method)
		if m := protocol.NameMember(method); m != "" {
			if v, ok := rawjson.GetString([]byte(params), m); ok {
				header["Mcp-Name"] = protocol.EncodeHeader(v)
			}
		}
	}
	s.post(body, header)
}

// oldSSE speaks the transport of 2024-11-05.
type oldSSE struct {
	*streamable
	endpoint string
}

func overSSE(h *house, route, era, caps string) caller {
	s := &oldSSE{streamable: &streamable{line: newLine(h, route, era, caps), http: plainHTTP(h, nil)}}
	resp, err := s.http.Do(s.request(http.MethodGet, strings.Replace(doorward.Path(route), "/mcp", "/sse", 1), ""))
	if err != nil {
		h.t.Fatal(err)
	}
	events := sse.NewReader(resp.Body, 1<<22)
	first, err := events.Next()
	if err != nil {
		h.t.Fatal(err)
	}
	s.endpoint = string(first.Data)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			ev, err := events.Next()
			if err != nil {
				return
			}
			if len(ev.Data) > 0 {
				s.hear(bytes.Clone(ev.Data))
			}
		}
	})
	h.t.Cleanup(func() { resp.Body.Close(); done.Wait() })
	h.t.Cleanup(s.pending.Wait)
	s.answer = func(body string) { s.put(body, "") }
	s.put(s.hello(), `"hello"`)
	s.put(initialized, "")
	return s
}

// put sends one message and waits for its answer on the stream.
func (s *oldSSE) put(body, id string) {
	resp, err := s.http.Do(s.request(http.MethodPost, s.endpoint, body))
	if err != nil {
		s.h.failed(err)
		return
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
		s.hear(text)
		s.mu.Lock()
		delete(s.ids, "") // it has been heard here
		s.mu.Unlock()
		return
	}
	if id != "" {
		s.answered(id)
	}
}

func (s *oldSSE) say(method, params string, id bool) { s.put(s.message(method, params, id)) }

// stdioCaller speaks to `connect`, which carries its lines over the Unix socket.
type stdioCaller struct {
	*line
	in *lockedWriter
}

// lockedWriter takes one line at a time.
type lockedWriter struct {
	mu sync.Mutex
	io.WriteCloser
}

func (w *lockedWriter) line(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	io.WriteString(w, text+"\n") // what reads it may have ended: then nothing is answered
}

func overConnect(h *house, route, era, caps string) caller {
	s := &stdioCaller{line: newLine(h, route, era, caps)}
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	s.in = &lockedWriter{WriteCloser: in}
	s.answer = s.in.line
	daemon := doorward.New(h.socket(), "test")
	var done sync.WaitGroup
	done.Go(func() {
		defer stdout.Close()
		if err := doorward.Connect(context.Background(), daemon, doorward.ConnectOptions{Server: route, In: stdin, Out: stdout, Log: slog.New(slog.DiscardHandler)}); err != nil {
			h.t.Errorf("connect: %v", err)
		}
	})
	done.Go(func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			s.hear(bytes.Clone(lines.Bytes()))
		}
	})
	h.t.Cleanup(func() { s.pending.Wait(); in.Close(); done.Wait(); daemon.Close() })
	if !s.modern() {
		s.in.line(s.hello())
		s.answered(`"hello"`)
		s.in.line(initialized)
	}
	return s
}

func (s *stdioCaller) say(method, params string, id bool) {
	text, number := s.message(method, params, id)
	s.in.line(text)
	if !id { // carried before what comes behind it
		text, number = s.message("ping", "", true)
		s.in.line(text)
	}
	s.answered(number)
	if method == "subscriptions/listen" {
		s.in.line(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + number + `}}`)
	}
}

// socket serves the house on a Unix socket, once.
func (h *house) socket() string {
	if h.unix != "" {
		return h.unix
	}
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		h.t.Fatal(err)
	}
	h.unix = filepath.Join(dir, "s")
	l, err := net.Listen("unix", h.unix)
	if err != nil {
		h.t.Fatal(err)
	}
	srv := &http.Server{Handler: h.door}
	go srv.Serve(l)
	h.t.Cleanup(func() { srv.Close(); os.RemoveAll(dir) })
	return h.unix
}

// callers are all ways to a route: each era on each transport that it has.
var callers = []struct {
	name string
	era  string
	open func(h *house, route, era, caps string) caller
}{
	{"http", protocol.V20250326, overHTTP},
	{"http", protocol.V20250618, overHTTP},
	{"http", protocol.V20251125, overHTTP},
	{"http", protocol.V20260728, overHTTP},
	{"sse", protocol.V20241105, overSSE},
	{"sse", protocol.V20251125, overSSE},
	{"connect", protocol.V20241105, overConnect},
	{"connect", protocol.V20251125, overConnect},
	{"connect", protocol.V20260728, overConnect},
}

// everyCaller runs f for each of the callers in parallel, on the aggregate and on
// one server.
func everyCaller(t *testing.T, server string, f func(t *testing.T, route, name string, open func(h *house, caps string) caller)) {
	for _, c := range callers {
		for _, route := range []string{"", server} {
			t.Run(c.name+" "+c.era+" /"+route, func(t *testing.T) {
				t.Parallel()
				f(t, route, c.name, func(h *house, caps string) caller { return c.open(h, route, c.era, caps) })
			})
		}
	}
}
