package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// ConnectOptions configures Connect.
type ConnectOptions struct {
	Server string // "" is the aggregate
	In     io.Reader
	Out    io.Writer
	Log    *slog.Logger
	// Namespace is the label of the project that the client works on, for the
	// daemon's messaging; empty: none.
	Namespace string
	// Channel selects the notifications of new mail to the client.
	Channel Channel
	// Patience is how long a message waits for a daemon that does not answer,
	// such as one that restarts. Default 5 s, well below the timeouts of clients.
	Patience time.Duration
}

// maxLine is the limit of one message from the client in bytes.
const maxLine = 64 << 20

// farewell is how long Connect waits for outstanding answers after the input has ended.
const farewell = 30 * time.Second

// Connect carries a stdio client's messages to the daemon and back, in both
// eras, until the input ends. Every request gets an answer: the server's, or
// an error if the connection to the daemon is lost.
func Connect(ctx context.Context, c *Client, o ConnectOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	s := &shim{c: c.within(o.Namespace), o: o, ctx: ctx, path: Path(o.Server), calls: make(map[string]context.CancelFunc)}
	s.listens, s.deafen = context.WithCancel(ctx)
	if o.Channel != ChannelOff {
		s.channel = newChannel(s)
	}
	err := s.read()
	s.finish()
	if err == nil && !s.reached.Load() && (s.away.Load() || errors.Is(c.Reach(ctx), ErrNoDaemon)) {
		return ErrNoDaemon
	}
	return err
}

// read handles the lines of the input until it ends.
func (s *shim) read() error {
	in := bufio.NewReaderSize(s.o.In, 64<<10)
	for {
		line, err := readLine(in)
		if deaf := s.deaf(); deaf != nil {
			return deaf
		}
		if len(bytes.TrimSpace(line)) > 0 {
			s.take(line)
		}
		switch {
		case errors.Is(err, io.EOF) || s.ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("reading the client's messages: %w", err)
		}
	}
}

var errLongLine = errors.New("a message exceeds the limit")

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, errLongLine
		}
	}
}

// take handles one message. Requests run concurrently; all other messages, and the
// handshake, keep their order.
func (s *shim) take(line []byte) {
	m, err := wire.Parse(line, wire.FromClient)
	if bad := (*wire.SyntaxError)(nil); errors.As(err, &bad) {
		if s.batch(line) {
			return
		}
		s.refuse(nil, int64(bad.Code), map[int]string{-32700: "Parse error", -32600: "Invalid request"}[bad.Code])
		return
	}
	modern := protocol.LooksModern(text(rawjson.GetPath(m.Params, "_meta", wire.MetaVersion)))
	s.introduce(&m, modern)
	switch {
	case m.Method == "notifications/cancelled" && s.cancelModern(rawjson.Get(m.Params, "requestId")):
	case modern && m.Kind == wire.Notification:
		s.tell(&m, line)
	case m.Kind == wire.Notification && m.Method == "notifications/cancelled":
		s.legacy.cancelled(s, rawjson.Get(m.Params, "requestId"), &m, line)
	case m.Kind != wire.Request:
		s.legacy.oneWay(s, &m, line)
	case m.Method == "initialize" && !modern:
		s.legacy.initialize(s, &m, line)
	case modern && m.Method == "server/discover" && s.channel != nil:
		s.refuse(m.ID, -32601, "Method not found")
	case modern && m.Method == "subscriptions/listen":
		s.start(&m, func(ctx context.Context) { s.listen(ctx, &m, line) })
	case modern:
		s.start(&m, func(ctx context.Context) { s.modern(ctx, &m, line) })
	default:
		f, over := s.legacy.enter(s.ctx, m.ID)
		s.start(nil, func(context.Context) {
			defer over()
			s.legacy.request(s, f.ctx, &m, line)
		})
	}
}

// batch takes the messages of an array one by one, in a session of the version that has
// arrays (2025-03-26 Overview, "Batching"). Each request gets an answer of its own. It returns
// false if line is not such an array, or opens a session.
func (s *shim) batch(line []byte) bool {
	s.legacy.mu.Lock()
	version := s.legacy.version
	s.legacy.mu.Unlock()
	msgs, array, err := wire.ParseBatch(line, wire.FromClient)
	if version != protocol.V20250326 || !array || err != nil {
		return false
	}
	for i := range msgs {
		if msgs[i].Method == "initialize" {
			return false
		}
	}
	var each []json.RawMessage
	if json.Unmarshal(line, &each) != nil {
		return false // cannot happen: ParseBatch has read it
	}
	for _, one := range each {
		s.take(one)
	}
	return true
}

// introduce passes the client's name to the guide, for its delivery session.
func (s *shim) introduce(m *wire.Message, modern bool) {
	switch {
	case modern:
		s.c.guide.introduce(rawjson.GetPath(m.Params, "_meta", wire.MetaClientInfo))
	case m.Method == "initialize":
		s.c.guide.introduce(rawjson.Get(m.Params, "clientInfo"))
	}
}

// start runs one request in a goroutine. m is not nil if cancelModern must be able to cancel it.
func (s *shim) start(m *wire.Message, f func(context.Context)) {
	ctx, cancel := context.WithCancel(s.ctx)
	if m != nil {
		s.mu.Lock()
		s.calls[string(m.ID)] = cancel
		s.mu.Unlock()
	}
	s.busy.Go(func() {
		defer cancel()
		f(ctx)
		if m != nil {
			s.mu.Lock()
			delete(s.calls, string(m.ID))
			s.mu.Unlock()
		}
	})
}

// tell forwards a modern notification, in order. Over stdio a notification has no answer,
// so a refusal is logged.
func (s *shim) tell(m *wire.Message, line []byte) {
	resp, err := s.send(s.ctx, m, func() (*response, error) {
		r, err := s.c.post(s.ctx, s.path, m, line, modernHeaders(m))
		return &response{r, ""}, err
	})
	if err != nil {
		s.o.Log.Warn("notification not delivered", "method", m.Method, "err", err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		s.o.Log.Warn("notification refused", "method", m.Method, "status", resp.StatusCode)
	}
}

// cancelModern closes the stream of a modern request, which cancels it over HTTP
// (Cancellation). It reports whether there was such a request.
func (s *shim) cancelModern(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel := s.calls[string(id)]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// modern carries one stateless request. It is sent again only if it
// certainly did not reach a daemon.
func (s *shim) modern(ctx context.Context, m *wire.Message, line []byte) {
	resp, err := s.send(ctx, m, func() (*response, error) {
		r, err := s.c.post(ctx, s.path, m, line, modernHeaders(m))
		return &response{r, ""}, err
	})
	if err != nil {
		s.lost(ctx, m.ID, err)
		return
	}
	defer resp.Body.Close()
	answered, served := false, false
	err = s.c.messages(resp.Response, func(got *wire.Message, raw []byte) bool {
		if got.Kind == wire.Response {
			answered, served = true, got.Error == nil
		}
		s.write(named(m.ID, got, raw))
		return true
	})
	if !answered {
		s.lost(ctx, m.ID, err)
	}
	if served {
		s.channel.beginModern()
	}
}

// finish waits for the outstanding answers, at most farewell, and ends the session.
func (s *shim) finish() {
	s.deafen()
	done := make(chan struct{})
	go func() {
		s.busy.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-s.ctx.Done():
	case <-time.After(farewell):
	}
	s.legacy.end(s)
}
