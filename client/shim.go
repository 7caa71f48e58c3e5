package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// shim is one stdio conversation.
type shim struct {
	c    *Client
	o    ConnectOptions
	ctx  context.Context
	path string
	busy sync.WaitGroup

	listens context.Context // ends with the input, when the client is gone
	deafen  context.CancelFunc

	away, reached atomic.Bool // a message found no daemon; one found it

	out sync.Mutex // guards o.Out: one message a line

	mu    sync.Mutex
	calls map[string]context.CancelFunc // in flight, by raw id

	legacy  legacySession
	channel *channel // nil: off
}

// send tries until a daemon is there or patience ends.
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

// lost answers a request whose answer will not come.
func (s *shim) lost(ctx context.Context, id wire.ID, err error) {
	switch {
	case ctx.Err() != nil && s.ctx.Err() == nil: // the client cancelled it
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

// rest waits, and then until there is a daemon, for at most a minute.
func (s *shim) rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s.c.Wait(waiting)
}

// write puts one message on one line. A newline in valid JSON is white space.
func (s *shim) write(msg []byte) {
	line := append(make([]byte, 0, len(msg)+1), msg...)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	s.out.Lock()
	defer s.out.Unlock()
	s.o.Out.Write(append(line, '\n'))
}

// response is an HTTP answer and the session it belongs to.
type response struct {
	*http.Response
	session string
}

// named is a message that came for the request id. A refusal that was given
// before the request was read, such as that of an unknown server, names no
// request: it is this one's answer, and over stdio nothing else says so.
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
