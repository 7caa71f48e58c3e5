package front

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

// rawStream is an event stream on a connection that was taken over from net/http. An idle one
// costs a few KiB instead of the 30 KiB of a blocked handler (docs/performance.md), and most
// streams of agents are idle.
type rawStream struct {
	conn  net.Conn
	await func(net.Conn, func()) bool // Options.Await
	lost  func()                      // tells the client that it has missed events; nil: it is not told
	reader
}

var errCannotHijack = errors.New("the connection cannot be taken over")

// takeOver answers r with the head of an event stream and takes its connection. It keeps
// nothing of w or r.
func (d *Door) takeOver(w http.ResponseWriter, r *http.Request) (*rawStream, error) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return nil, errCannotHijack
	}
	conn, rw, err := h.Hijack()
	if err != nil {
		return nil, err
	}
	if rw.Reader.Buffered() > 0 { // data follows the request
		conn.Close()
		return nil, errCannotHijack
	}
	s := &rawStream{conn: conn, await: d.o.Await, reader: reader{unread: d.o.unread(r.Context())}}
	if err := s.start(); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// start sends the head and a comment. A proxy may hold back a head until the first byte of its
// body (nginx to clients of HTTP/2 does), and clients wait for it. The head announces the end of the
// connection, because net/http cannot take the connection back for another request.
func (s *rawStream) start() error {
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return s.raw([]byte("HTTP/1.1 200 OK\r\nDate: " + time.Now().UTC().Format(http.TimeFormat) +
		"\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n" +
		"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n" + beat + "\r\n"))
}

func (s *rawStream) event(id string, data []byte) error { return s.named(id, "message", data) }

func (s *rawStream) named(id, name string, data []byte) error {
	return s.chunk(sse.Append(nil, id, name, data))
}

// beat is a comment of 14 bytes.
const beat = ": keep-alive\n\n"

func (s *rawStream) comment() error { return s.chunk([]byte(beat)) }

// chunk writes one chunk of the body in one write.
func (s *rawStream) chunk(b []byte) error {
	return s.raw(appendChunk(make([]byte, 0, len(b)+16), b))
}

// appendChunk appends one chunk of a body (RFC 9112, 7.1).
func appendChunk(out, b []byte) []byte {
	out = strconv.AppendInt(out, int64(len(b)), 16)
	out = append(out, "\r\n"...)
	out = append(out, b...)
	return append(out, "\r\n"...)
}

// lastChunk ends a body in chunks.
const lastChunk = "0\r\n\r\n"

// finish writes the end of the body.
func (s *rawStream) finish() { s.raw([]byte(lastChunk)) }

func (s *rawStream) raw(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

func (s *rawStream) close() { s.conn.Close() }

// gone calls f once the client has closed the connection or sent data, which is not allowed.
// It reads on a goroutine of its own. If the connection can be awaited, the goroutine begins when
// there is something to read.
func (s *rawStream) gone(f func()) {
	conn := s.conn
	read := func() {
		var b [1]byte
		conn.Read(b[:])
		conn.Close()
		f()
	}
	if s.await == nil || !s.await(conn, read) {
		go read()
	}
}

// reader measures whether the client of a raw stream reads it.
type reader struct {
	unread func() (int, error) // nil: it cannot be measured
	due    atomic.Bool         // a keep-alive was written and has not been found read
}

// heard reports, once for each keep-alive, that it has been read.
func (r *reader) heard() bool {
	if r.unread == nil || !r.due.Swap(false) {
		return false
	}
	if allRead(r.unread) {
		return true
	}
	r.due.Store(true)
	return false
}

// allRead reports that all data written to a connection has been read.
func allRead(unread func() (int, error)) bool {
	n, err := unread()
	return err == nil && n == 0
}
