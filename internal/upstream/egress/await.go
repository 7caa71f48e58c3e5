package egress

import (
	"bufio"
	"io"
	"net"
)

// Await calls f on a goroutine of its own when there is something to read from the body of an
// answer: data, its end, or an error. Until then there is no goroutine. False: there is something
// already, or the body cannot be watched, and f is not called. The body must not be read or closed
// before f is called; its request may be cancelled.
func Await(body io.ReadCloser, f func()) bool {
	b, ok := body.(interface{ Await(f func()) bool })
	return ok && b.Await(f)
}

func (b wordedBody) Await(f func()) bool { return Await(b.ReadCloser, f) }

func (b *plainBody) Await(f func()) bool {
	if b.p.await == nil || b.over.Load() || b.c.r.Buffered() > 0 {
		return false
	}
	size := b.c.r.Size()
	b.c.buffer(leastBytes)
	if !b.c.wait(b.p.await, func() { b.c.buffer(size); f() }) {
		b.c.buffer(size)
		return false
	}
	return true
}

// leastBytes is the size of the buffer of a connection that is not read.
const leastBytes = 16

// buffer replaces the empty read buffer. The reader of the answer's body keeps a reference to r, so
// its content is replaced.
func (c *plainConn) buffer(size int) { *c.r = *bufio.NewReaderSize(c, size) }

// wait calls f when the connection can be read, or when the request is cancelled.
func (c *plainConn) wait(await func(net.Conn, func()) (func() bool, error), f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	stop, err := await(c.Conn, f)
	if err != nil {
		return false
	}
	c.wake = func() {
		if stop() {
			go f()
		}
	}
	return true
}

// interrupt ends reads and waits when the request is cancelled.
func (c *plainConn) interrupt() {
	_ = c.SetDeadline(longAgo) // fails on a closed connection, which needs no deadline
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	if c.wake != nil {
		c.wake()
	}
}
