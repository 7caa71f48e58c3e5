package upstream

import (
	"context"
	"errors"
	"time"
)

// Greeting is the outcome of the handshake of a connection.
type Greeting struct {
	Result []byte // InitializeResult or DiscoverResult, unchanged
	Modern bool   // the era of the connection
	// Only: the server has refused the other era.
	Only bool
}

// DialEither starts the program of a stdio server once, and finds out the era with that
// process. It sends server/discover first if modern is set, otherwise initialize, and the
// other one if the server refuses the first. If server/discover gets no answer within
// ProbeTimeout, initialize is sent too, because a server may ignore an unknown method. The
// program is not ended for its silence, because it may still be installing itself. on is as
// for DialLegacy.
//
// A program that ends on server/discover is started once more, for initialize.
// ErrEra: it refused both.
func (s *Server) DialEither(ctx context.Context, modern bool, meta, initParams []byte, on func(Event)) (Conn, Greeting, error) {
	limited, cancel := context.WithTimeout(ctx, s.def.dialLimit())
	defer cancel()
	c, err := s.startChild(modern, initParams, on)
	if err != nil {
		return nil, Greeting{}, err
	}
	c.quiet.Store(true)
	e := either{conn: c, meta: meta, init: initParams}
	greeting, err := e.negotiate(limited, modern)
	if err == nil {
		c.settle()
		return c, greeting, nil
	}
	if isContext(err) && ctx.Err() == nil {
		err = newFault(ErrTimeout, "the handshake took too long")
	}
	c.stop(err)
	var f *fault
	if errors.As(err, &f) && f.reason == endedOnDiscover && ctx.Err() == nil {
		again, result, err := s.DialLegacy(ctx, initParams, on)
		return again, Greeting{Result: result, Only: err == nil}, err
	}
	return nil, Greeting{}, err
}

// either is a child whose era is not settled.
type either struct {
	conn       *stdioConn
	meta, init []byte
}

// handshake is the outcome of server/discover or initialize.
type handshake struct {
	result []byte
	err    error
}

func (e either) negotiate(ctx context.Context, modern bool) (Greeting, error) {
	if modern {
		return e.modernFirst(ctx)
	}
	result, err := e.initialized(ctx)
	if err == nil || !errors.Is(err, ErrEra) {
		return Greeting{Result: result}, err
	}
	e.conn.modern.Store(true)
	if result, err = e.conn.discovered(ctx, e.meta); err != nil {
		return Greeting{}, err
	}
	return Greeting{Result: result, Modern: true, Only: true}, nil
}

// initialized makes the legacy handshake. From then on the client's params may be the cause
// if the child ends.
func (e either) initialized(ctx context.Context) ([]byte, error) {
	e.conn.modern.Store(false)
	e.conn.quiet.Store(false)
	result, err := e.conn.initialize(ctx, e.init)
	switch {
	case err == nil:
	case isContext(err), errors.Is(err, ErrEra):
		e.conn.quiet.Store(true)
	default:
		e.conn.noteEnd(err)
	}
	return result, err
}

func (e either) modernFirst(ctx context.Context) (Greeting, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := begin(func() ([]byte, error) { return e.conn.discovered(ctx, e.meta) })
	select {
	case h := <-found:
		var f *fault
		if h.err == nil {
			return Greeting{Result: h.result, Modern: true}, nil
		}
		if !errors.Is(h.err, ErrEra) || errors.As(h.err, &f) && f.reason == endedOnDiscover {
			return Greeting{}, h.err
		}
		result, err := e.initialized(ctx)
		return Greeting{Result: result, Only: true}, err
	case <-time.After(e.conn.srv.deps.ProbeTimeout):
	}
	return e.both(ctx, found)
}

// both sends initialize while server/discover is unanswered. If the server answers both, the
// connection is legacy, because initialize came last.
func (e either) both(ctx context.Context, found <-chan handshake) (Greeting, error) {
	made := begin(func() ([]byte, error) { return e.initialized(ctx) })
	h := <-made
	if h.err == nil {
		return Greeting{Result: h.result}, nil
	}
	if ctx.Err() != nil || !errors.Is(h.err, ErrEra) {
		return Greeting{}, h.err
	}
	select {
	case d := <-found:
		e.conn.modern.Store(true)
		return Greeting{Result: d.result, Modern: true, Only: true}, d.err
	case <-time.After(e.conn.srv.deps.ProbeTimeout):
		return Greeting{}, h.err
	}
}

func begin(f func() ([]byte, error)) <-chan handshake {
	out := make(chan handshake, 1)
	go func() {
		result, err := f()
		out <- handshake{result, err}
	}()
	return out
}
