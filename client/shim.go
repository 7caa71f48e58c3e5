package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// shim is the state of one call of Connect: the conversation of one stdio client.
type shim struct {
	c    *Client
	o    ConnectOptions
	ctx  context.Context
	path string
	busy sync.WaitGroup

	listens context.Context // of the client's listens; ends with the input
	deafen  context.CancelFunc

	away, reached atomic.Bool // a message did not find a daemon; a message has reached one

	out     sync.Mutex // guards o.Out and unheard
	unheard error      // of the first write that failed; nil: none

	mu    sync.Mutex
	calls map[string]context.CancelFunc // modern requests in flight, by raw id

	legacy  legacySession
	channel *channel // nil: off
}

// send calls post until a daemon answers or o.Patience has passed.
func (s *shim) send(ctx context.Context, m *wire.Message, post func() (*response, error)) (*response, error) {
	deadline, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	for {
		resp, err := post()
		if err == nil || !errors.Is(err, ErrNoDaemon) {
			s.reached.Store(true)
			return resp, err
		}
		if s.c.Wait(deadline) != nil {
			s.away.Store(true)
			return nil, err
		}
	}
}

// repeat posts messages again that set a session up, and waits for a daemon that accepts no
// connection. If the session is lost, the next request reopens it and repeats them.
func (s *shim) repeat(lines [][]byte, post func(*shim, []byte) (*response, error)) {
	for _, line := range lines {
		_, err := s.send(s.ctx, &wire.Message{}, func() (*response, error) { return post(s, line) })
		if errors.Is(err, ErrNoDaemon) {
			return
		}
	}
}

// agentTool returns the name of a tool of the server agent on the shim's route; empty: the
// route does not have it.
func (s *shim) agentTool(name string) string {
	switch s.o.Server {
	case "":
		return "agent__" + name
	case "agent":
		return name
	}
	return ""
}

// lost answers a request that will get no answer from the daemon with an error. It passes
// on the daemon's refusal of a session for the request, which was not carried out then.
func (s *shim) lost(ctx context.Context, id wire.ID, err error) {
	var refused *RPCError
	switch {
	case ctx.Err() != nil && s.ctx.Err() == nil: // the client has cancelled the request
	case errors.As(err, &refused):
		s.write(rawjson.AppendError(nil, id, &wire.Error{Code: refused.Code, Message: refused.Message, Data: refused.Data}))
	case errors.Is(err, ErrNoDaemon):
		s.refuse(id, 1503, "No doorward daemon is running: start it with `doorward serve`")
	default:
		s.o.Log.Debug("request lost", "err", err)
		s.refuse(id, 1502, "The connection to the doorward daemon was lost; the request may have been carried out")
	}
}

func (s *shim) refuse(id wire.ID, code int64, message string) {
	s.write(rawjson.AppendError(nil, id, &wire.Error{Code: code, Message: message}))
}

// rest waits for pause, and then until a daemon answers, for at most a minute.
func (s *shim) rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s.c.Wait(waiting)
}

// write writes one message as one line. A line break in valid JSON is white space and is
// replaced by a space.
func (s *shim) write(msg []byte) {
	line := append(make([]byte, 0, len(msg)+1), msg...)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.o.Out.Write(append(line, '\n')); err != nil && s.unheard == nil {
		s.unheard = fmt.Errorf("writing to the client: %w", err)
		if in, ok := s.o.In.(io.Closer); ok {
			in.Close() // ends the read: a call without an answer must not be made
		}
	}
}

// deaf returns the error of the first write that failed.
func (s *shim) deaf() error {
	s.out.Lock()
	defer s.out.Unlock()
	return s.unheard
}

// response is an HTTP response and the id of the MCP session of its request.
type response struct {
	*http.Response
	session string
}

// named returns a message received for the request id. A refusal before the request was
// read, such as that of an unknown server, has no id. Over stdio the client needs the id to
// match the answer, so it is added.
func named(id wire.ID, got *wire.Message, raw []byte) []byte {
	if got.Kind == wire.Response && got.ID == nil {
		return rawjson.AppendError(nil, id, got.Error)
	}
	return raw
}

func text(raw []byte) string {
	t, _ := wire.Text(raw)
	return t
}
