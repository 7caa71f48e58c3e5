package egress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Transport carries requests to one upstream. Requests over TLS use an http.Transport. Requests
// over plain HTTP/1.1 are written and read on the caller's own goroutine, which saves two
// goroutines for each connection and four hand-overs for each call (docs/performance.md). In both
// cases net/http parses and writes the messages, and the dialler is the same.
type Transport struct {
	Secure *http.Transport // https, and http through a proxy
	plain  plain
	proxy  bool
}

// NewRoundTripper makes the transport for one upstream, under the rules of NewTransport.
func NewRoundTripper(o Options) *Transport {
	return &Transport{Secure: NewTransport(o), proxy: o.proxied(),
		plain: plain{dial: dialer(o), await: o.Await, max: cmpMax(o.MaxIdle), idle: limit(o.Idle, DefaultIdle)}}
}

func cmpMax(n int) int {
	if n == 0 {
		return DefaultIdleMax
	}
	return n
}

// RoundTrip implements http.RoundTripper. Its errors repeat nothing of the upstream, as those of
// [Worded].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && !t.proxy {
		return worded(t.plain.roundTrip(req))
	}
	return worded(connected(t.Secure, standard(req)))
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.Secure.CloseIdleConnections()
	t.plain.drop()
}

// plain keeps the idle connections to one origin: an upstream has one URL.
type plain struct {
	dial  func(ctx context.Context, network, hostport string) (net.Conn, error)
	await func(net.Conn, func()) (func() bool, error) // Options.Await
	max   int
	idle  time.Duration

	mu    sync.Mutex
	free  []*plainConn // the last one was used last, and is used first
	shut  bool         // CloseIdleConnections was called, and no request came since
	sweep *time.Timer
}

// plainConn is one connection. A request owns it from take to release.
type plainConn struct {
	net.Conn
	host  string
	r     *bufio.Reader
	limit int64 // bytes that the header of an answer may still have
	body  bool  // the header is complete: no limit here
	since time.Time

	mu   sync.Mutex
	cut  bool   // the request was cancelled
	wake func() // ends an await; nil: there was none
}

// Read limits the size of the header, which http.ReadResponse does not.
func (c *plainConn) Read(b []byte) (int, error) {
	if c.body {
		return c.Conn.Read(b)
	}
	if c.limit <= 0 {
		return 0, errLongHeader
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.limit)])
	c.limit -= int64(n)
	return n, err
}

// requests are the buffers from which requests are written, each in one write.
var requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepRequest is the largest request buffer that is kept, in bytes.
const keepRequest = 64 << 10

func (p *plain) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c, err := p.take(ctx, req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.interrupt)
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		c.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	resp.Body = &plainBody{ReadCloser: resp.Body, p: p, c: c, stop: stop, ctx: ctx, keep: !resp.Close && !req.Close}
	return resp, nil
}

var longAgo = time.Unix(1, 0)

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

func hostport(req *http.Request) string {
	if req.URL.Port() == "" {
		return net.JoinHostPort(req.URL.Hostname(), "80")
	}
	return req.URL.Host
}

// exchange writes the request in one write and reads the header of the answer. Interim answers are
// skipped (RFC 9110, 15.2).
func (c *plainConn) exchange(req *http.Request) (*http.Response, error) {
	buf := requests.Get().(*bytes.Buffer)
	buf.Reset()
	err := write(buf, req)
	if err == nil {
		_, err = c.Conn.Write(buf.Bytes())
	}
	if buf.Cap() <= keepRequest {
		requests.Put(buf)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	for range maxInterim {
		c.body, c.limit = false, maxHeaderBytes
		resp, err := http.ReadResponse(c.r, req)
		if err != nil {
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		if resp.StatusCode >= 200 {
			c.body = true
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errNoStatus
}

const maxInterim = 5

// bufferFor returns the size of the read buffer of a connection for a request. A stream of events
// keeps its buffer as long as its session lives, and carries little, so it gets a small one. The
// line with the size of a chunk, including its extensions, has to fit (net/http/internal).
func bufferFor(req *http.Request) int {
	if req.Method == http.MethodGet {
		return streamBytes
	}
	return bufferBytes
}

// take returns an idle connection that the server has not closed, or dials. A stream of events
// always gets a new one with a small buffer.
func (p *plain) take(ctx context.Context, req *http.Request) (*plainConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	host, buffer := hostport(req), bufferFor(req)
	if buffer == bufferBytes {
		if c := p.idleTo(host); c != nil {
			return c, nil
		}
	}
	conn, err := p.dial(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	c := &plainConn{Conn: conn, host: host}
	c.r = bufio.NewReaderSize(c, buffer)
	return c, nil
}

// idleTo removes and returns the idle connection that was used last; nil: there is none.
func (p *plain) idleTo(host string) *plainConn {
	for {
		p.mu.Lock()
		p.shut = false
		n := len(p.free)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.mu.Unlock()
		if c.host == host && c.quiet() {
			return c
		}
		c.Close()
	}
}

// quiet reports whether the server has neither closed the connection nor sent anything on it.
func (c *plainConn) quiet() bool {
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		quiet = silent(fd)
		return true
	})
	return err == nil && quiet
}

// release makes a connection idle after its answer has been read to its end.
func (p *plain) release(c *plainConn) {
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut || len(p.free) >= p.max || c.r.Size() < bufferBytes {
		c.Close()
		return
	}
	p.free = append(p.free, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(sweepEvery, p.swept)
	}
}

// sweepEvery is how soon an idle connection that its server has closed is noticed; no goroutine
// reads from it.
const sweepEvery = 5 * time.Second

// swept closes connections that are dead or were idle for too long, and runs again as long as any
// is idle.
func (p *plain) swept() {
	old := time.Now().Add(-p.idle)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(func(c *plainConn) bool { return c.quiet() && (p.idle == 0 || c.since.After(old)) })
	p.sweep = nil
	if len(p.free) > 0 {
		p.sweep = time.AfterFunc(sweepEvery, p.swept)
	}
}

// drop closes every idle connection.
func (p *plain) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	p.keep(func(*plainConn) bool { return false })
}

// keep closes the idle connections that are not wanted. The caller holds mu.
func (p *plain) keep(wanted func(*plainConn) bool) {
	kept := p.free[:0]
	for _, c := range p.free {
		if wanted(c) {
			kept = append(kept, c)
			continue
		}
		c.Close()
	}
	clear(p.free[len(kept):])
	p.free = kept
}

// plainBody returns its connection to the idle ones if it was read to the end, and closes it
// otherwise.
type plainBody struct {
	io.ReadCloser
	p    *plain
	c    *plainConn
	stop func() bool
	ctx  context.Context
	keep bool
	over atomic.Bool
}

func (b *plainBody) Read(buf []byte) (int, error) {
	if b.over.Load() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(buf)
	if err == io.EOF {
		b.end(true)
	} else if err != nil {
		b.end(false)
		if b.ctx.Err() != nil {
			err = b.ctx.Err()
		}
	}
	return n, err
}

// Close implements io.Closer. It does not wait for unread data.
func (b *plainBody) Close() error {
	b.end(false)
	return nil
}

// end releases the connection, once. After a cancellation its deadline is spoilt, so it is closed
// then too.
func (b *plainBody) end(read bool) {
	if b.over.Swap(true) {
		return
	}
	if b.stop() && read && b.keep && b.c.r.Buffered() == 0 {
		b.p.release(b.c)
		return
	}
	b.c.Close()
}
