package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/wire"
)

// legacySession is the MCP session of the shim with the daemon, with everything needed to
// open it again when the daemon no longer knows it.
type legacySession struct {
	opening sync.Mutex // held while a session is opened

	mu      sync.Mutex
	id      string
	init    []byte // the client's initialize message
	caps    []byte // the capabilities in its answer
	version string
	ready   bool               // notifications/initialized has been sent
	level   []byte             // the last logging/setLevel message
	uris    map[string][]byte  // resources/subscribe messages by raw uri
	holder  string             // id of the session in which the client has registered a name; empty: none
	hush    context.CancelFunc // ends the standalone stream
	calls   map[string]*flight // requests in flight by raw id

	owes      atomic.Pointer[owed] // of the session, if it replaced another
	asked     atomic.Int64         // number of requests of the shim itself
	following sync.Once
}

// flight is a legacy request that waits for its answer. ctx ends when the client cancels the
// request; done is closed at the request's end.
type flight struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *legacySession) headers() (http.Header, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := http.Header{}
	if l.id != "" {
		h["Mcp-Session-Id"] = []string{l.id}
		h["Mcp-Protocol-Version"] = []string{l.version}
	}
	return h, l.id
}

// initialize opens the session and forwards the daemon's answer.
func (l *legacySession) initialize(s *shim, m *wire.Message, line []byte) {
	l.mu.Lock()
	l.init = append([]byte(nil), line...)
	l.mu.Unlock()
	answer, err := l.open(s, m, line)
	if answer == nil {
		s.lost(s.ctx, m.ID, err)
		return
	}
	s.write(s.channel.declare(answer))
}

// open sends initialize, keeps the id and version of the session, and returns the answer.
// An answer that opens no session comes with an error, an *RPCError for a JSON-RPC error.
func (l *legacySession) open(s *shim, m *wire.Message, line []byte) ([]byte, error) {
	resp, err := s.send(s.ctx, m, func() (*response, error) {
		r, err := s.c.post(s.ctx, s.path, m, line, nil)
		return &response{r, ""}, err
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer []byte
	version, id := "", resp.Header.Get("Mcp-Session-Id")
	var refused error
	var caps []byte
	err = s.c.messages(resp.Response, func(got *wire.Message, raw []byte) bool {
		refused = rpcError(got)
		answer = append([]byte(nil), named(m.ID, got, raw)...)
		version, _ = rawjson.GetString(got.Result, "protocolVersion")
		caps = bytes.Clone(rawjson.Get(got.Result, "capabilities"))
		return got.Kind != wire.Response
	})
	if err == nil && answer == nil {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if refused == nil && id == "" {
		refused = errors.New("the daemon opened no session")
	}
	if refused == nil {
		l.mu.Lock()
		l.id, l.version, l.caps = id, version, caps
		l.mu.Unlock()
	}
	return answer, refused
}

// reopen replaces the session forgotten, which the daemon no longer knows. Several requests
// may call it concurrently; one of them opens the new session. The client is told to look again
// at what it knows from the one before. A refusal is an *RPCError.
func (l *legacySession) reopen(s *shim, forgotten string) error {
	l.opening.Lock()
	defer l.opening.Unlock()
	l.mu.Lock()
	line, ready, now, level := l.init, l.ready, l.id, l.level
	l.mu.Unlock()
	if now != forgotten {
		return nil
	}
	m, err := wire.Parse(line, wire.FromClient)
	if err != nil {
		return errors.New("there is no initialize request to repeat")
	}
	if _, err := l.open(s, &m, line); err != nil {
		return err
	}
	if !ready {
		return nil
	}
	s.o.Log.Debug("session opened again after the daemon was restarted")
	lines := [][]byte{[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)}
	if level != nil {
		lines = append(lines, level)
	}
	s.repeat(lines, l.post)
	o := l.lacks(s)
	o.subscribe(func(string) {})
	l.begin(s, true)
	go o.later()
	return nil
}

// lacks returns the subscriptions of the client as those that the session opened last lacks.
func (l *legacySession) lacks(s *shim) *owed {
	l.mu.Lock()
	defer l.mu.Unlock()
	session := l.id
	o := &owed{s: s, uris: maps.Clone(l.uris), changed: make(chan struct{}, 1), over: make(chan struct{})}
	o.post = func(s *shim, line []byte) (*response, error) {
		h, id := l.headers()
		r, err := s.c.post(s.ctx, s.path, &wire.Message{}, line, h)
		return &response{r, id}, err
	}
	o.wants = func(uri string) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.id == session && l.uris[uri] != nil
	}
	if before := l.owes.Swap(o); before != nil {
		close(before.over)
	}
	return o
}

// post sends one message that has no JSON-RPC answer, or whose answer is ignored.
func (l *legacySession) post(s *shim, line []byte) (*response, error) {
	h, id := l.headers()
	r, err := s.c.post(s.ctx, s.path, &wire.Message{}, line, h)
	if err != nil {
		return nil, err
	}
	io.Copy(io.Discard, io.LimitReader(r.Body, maxAnswer))
	r.Body.Close()
	return &response{r, id}, nil
}

// oneWay forwards a notification or a response, in order.
func (l *legacySession) oneWay(s *shim, m *wire.Message, line []byte) {
	l.mu.Lock()
	open := l.id != ""
	l.mu.Unlock()
	if !open {
		return // there is no session to send it in
	}
	for range 2 {
		r, err := s.send(s.ctx, m, func() (*response, error) { return l.post(s, line) })
		if err != nil || r.StatusCode != http.StatusNotFound || l.reopen(s, r.session) != nil {
			break
		}
	}
	if m.Method == "notifications/initialized" {
		l.mu.Lock()
		l.ready = true
		l.mu.Unlock()
		l.begin(s, false)
	}
}

// request carries one request. If the daemon does not know the session, the request was
// not executed: the session is opened again and the request is sent once more. ctx ends when
// the client cancels the request.
func (l *legacySession) request(s *shim, ctx context.Context, m *wire.Message, line []byte) {
	l.remember(m, line)
	for again := true; ; again = false {
		resp, err := s.send(s.ctx, m, func() (*response, error) {
			h, id := l.headers()
			r, err := s.c.post(s.ctx, s.path, m, line, h)
			return &response{r, id}, err
		})
		if err != nil {
			s.lost(ctx, m.ID, err)
			return
		}
		if resp.StatusCode == http.StatusNotFound && resp.session != "" && again {
			resp.Body.Close()
			if err := l.reopen(s, resp.session); err != nil {
				s.lost(ctx, m.ID, err)
				return
			}
			continue
		}
		l.relay(s, ctx, m, resp)
		s.channel.left(m)
		return
	}
}

// remember keeps the messages that must be repeated in a new session.
func (l *legacySession) remember(m *wire.Message, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uri := string(rawjson.Get(m.Params, "uri"))
	switch m.Method {
	case "logging/setLevel":
		l.level = append([]byte(nil), line...)
	case "resources/subscribe":
		if l.uris == nil {
			l.uris = make(map[string][]byte)
		}
		l.uris[uri] = append([]byte(nil), line...)
	case "resources/unsubscribe":
		delete(l.uris, uri)
	}
}

// relay forwards the messages of a POST's answer. A stream that ends before the response
// is resumed after its last event, if events have ids.
func (l *legacySession) relay(s *shim, ctx context.Context, m *wire.Message, resp *response) {
	if resp.StatusCode == http.StatusAccepted {
		resp.Body.Close()
		return // the request was cancelled and has no response
	}
	answered, last, session := false, "", resp.session
	take := func(got *wire.Message, raw []byte) bool {
		answered = answered || got.Kind == wire.Response
		if got.Kind == wire.Response && got.Error == nil && !rawjson.IsTrue(rawjson.Get(got.Result, "isError")) {
			l.registered(s, m, session)
		}
		s.deliver(got, named(m.ID, got, raw))
		return !answered
	}
	var err error
	for tries := 0; tries < 60; tries++ {
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			err = s.c.messages(resp.Response, take)
		} else {
			err = s.c.events(resp.Body, func(e sse.Event) bool {
				if e.HasID {
					last = e.ID
				}
				return eachMessage(e.Data, take)
			})
		}
		resp.Body.Close()
		if answered || last == "" || ctx.Err() != nil {
			break
		}
		time.Sleep(resumePause)
		next, failed := l.get(s, s.ctx, last)
		if failed != nil { // formatted as text: ErrNoDaemon would wrongly mean that the request was not sent
			err = fmt.Errorf("resuming the stream: %s", failed.Error())
			break
		}
		resp = next
	}
	if !answered {
		l.maybeRegistered(s, m, session)
		s.lost(ctx, m.ID, err)
	}
}

// resumePause is the time before an interrupted stream is resumed.
const resumePause = 200 * time.Millisecond

// get opens an event stream, behind event last if that is not empty.
func (l *legacySession) get(s *shim, ctx context.Context, last string) (*response, error) {
	h, id := l.headers()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+s.path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	r, err := s.c.do(req)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		r.Body.Close()
		return &response{r, id}, errStatus
	}
	return &response{r, id}, nil
}

var errStatus = errors.New("the stream was refused")

// hear starts to read the session's standalone stream, in place of an earlier one.
func (l *legacySession) hear(s *shim) {
	ctx, cancel := context.WithCancel(s.ctx)
	l.mu.Lock()
	if l.hush != nil {
		l.hush()
	}
	l.hush = cancel
	l.mu.Unlock()
	go l.listen(s, ctx)
}

// listen reads the standalone stream, and opens it again when it ends. If the daemon no
// longer knows the session, listen opens that again too.
func (l *legacySession) listen(s *shim, ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		resp, err := l.get(s, ctx, last)
		if err == nil {
			s.c.events(resp.Body, func(e sse.Event) bool {
				if e.HasID {
					last = e.ID
				}
				return eachMessage(e.Data, func(got *wire.Message, raw []byte) bool {
					l.owes.Load().notice(got)
					s.deliver(got, raw)
					return true
				})
			})
			resp.Body.Close()
		}
		if errors.Is(err, errStatus) && resp.StatusCode == http.StatusNotFound {
			if l.reopen(s, resp.session) == nil {
				return // the new session has its own listener
			}
		}
		s.rest(ctx, time.Second)
	}
}

// end ends the session with the daemon.
func (l *legacySession) end(s *shim) {
	h, id := l.headers()
	l.mu.Lock()
	if l.hush != nil {
		l.hush()
	}
	l.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, base+s.path, nil)
	if err != nil {
		return
	}
	req.Header = h
	if resp, err := s.c.do(req); err == nil {
		resp.Body.Close()
	}
}
