package store

import (
	"context"
	"io"
)

// pool manages at most a fixed number of connections, each for one user at a
// time, and opens them when they are first needed. The connection returned last is used
// first, so that no more connections are used than needed.
type pool[C io.Closer] struct {
	open   func(context.Context) (C, error)
	tokens chan struct{} // holds one element for each connection in use
	idle   chan []C      // holds one slice: the idle connections, the latest last
	closed chan struct{}
}

func newPool[C io.Closer](size int, open func(context.Context) (C, error)) *pool[C] {
	p := &pool[C]{open: open, tokens: make(chan struct{}, size), idle: make(chan []C, 1), closed: make(chan struct{})}
	p.idle <- nil
	return p
}

// get waits for a connection until ctx ends. The caller returns it with put or
// drop.
func (p *pool[C]) get(ctx context.Context) (C, error) {
	var none C
	select {
	case <-p.closed:
		return none, errClosed
	default:
	}
	select {
	case p.tokens <- struct{}{}:
	case <-p.closed:
		return none, errClosed
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if c, ok := p.take(); ok {
		return c, nil
	}
	c, err := p.open(ctx)
	if err != nil {
		<-p.tokens
	}
	return c, err
}

// take returns an idle connection, if there is one. The caller holds a token.
func (p *pool[C]) take() (c C, ok bool) {
	in := <-p.idle
	if n := len(in); n > 0 {
		c, in, ok = in[n-1], in[:n-1], true
	}
	p.idle <- in
	return c, ok
}

// put returns a connection to the pool.
func (p *pool[C]) put(c C) {
	p.idle <- append(<-p.idle, c)
	<-p.tokens
}

// drop closes a connection that failed. The error of Close is ignored, because the failure
// is known.
func (p *pool[C]) drop(c C) {
	_ = c.Close()
	<-p.tokens
}

// dropIdle closes the idle connections.
func (p *pool[C]) dropIdle() {
	in := <-p.idle
	p.idle <- nil
	for _, c := range in {
		_ = c.Close()
	}
}

// close waits for the connections in use and closes all. It is called once.
func (p *pool[C]) close() error {
	close(p.closed)
	for range cap(p.tokens) {
		p.tokens <- struct{}{}
	}
	var first error
	for _, c := range <-p.idle {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
