package front

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// A request of a session that waits for an event (Reply.Later) has no handler: its connection
// is taken over from net/http, so that the buffers and goroutines of the connection and the stack
// of the call are free. A goroutine with a small stack waits. The answer is written here, and
// then the connection goes back to its listener for the next request.

// detach takes the connection of a waiting request over from net/http. Nothing of the request of
// net/http is kept. False: it cannot be taken over, or not given back.
func (f streamable) detach(in *inbound, x *Exchange) bool {
	if f.d.o.Back == nil || x.hungUp == nil || in.r.Close || in.w.Header().Get("Connection") != "" {
		return false
	}
	back := f.d.o.Back(in.r.Context())
	h, ok := in.w.(http.Hijacker)
	if back == nil || !ok {
		return false
	}
	f.d.late.Add(1) // while net/http still counts the request
	if !x.stream.moves(h, in.w.Header(), back) {
		f.d.late.Add(-1)
		return false
	}
	x.stream.late.server, _ = in.r.Context().Value(http.ServerContextKey).(*http.Server)
	if x.client.Err() != nil { // net/http has found the end of the connection
		x.hungUp = func() bool { return true }
	}
	in.buf = nil // x refers to it
	x.request, x.client = nil, nil
	return true
}

// moves takes a connection over and writes the stream to it from now on; false: it does not.
func (s *stream) moves(h http.Hijacker, header http.Header, back func([]byte)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began && s.out == nil {
		return false
	}
	conn, rw, err := h.Hijack()
	if err != nil {
		return false
	}
	ahead, _ := rw.Reader.Peek(rw.Reader.Buffered())
	s.late = &lateWriter{conn: conn, header: header, began: s.began, ahead: append([]byte(nil), ahead...), back: back}
	s.w = s.late
	if s.out != nil {
		s.out = newSink(s.w)
	}
	s.life.measure()
	return true
}

// await waits for the next event of a request without a handler.
func (f streamable) await(ctx context.Context, x *Exchange, later Later, end func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			f.over(x, end, panicked)
		}
	}()
	later.Await(ctx)
	go f.goOn(ctx, x, later, end) // with a stack of its own, which grows
}

// goOn continues a request without a handler after an event.
func (f streamable) goOn(ctx context.Context, x *Exchange, later Later, end func()) {
	waits := false
	defer func() {
		if !waits {
			f.over(x, end, recover())
		}
	}()
	reply := later.Go(ctx)
	if waits = reply.Later != nil; waits {
		go f.await(ctx, x, reply.Later, end)
		return
	}
	x.stream.finish(x.Era, x.ID, f.d.completed(x, reply))
}

// over ends a request without a handler. panicked is the value of a panic; nil: it has an answer.
func (f streamable) over(x *Exchange, end func(), panicked any) {
	defer f.d.late.Add(-1)
	x.stream.leave()
	end()
	if panicked != nil {
		x.stream.late.abort(panicked)
		return
	}
	x.stream.late.end()
}

// Drain waits until the requests without a handler are answered, or ctx has ended.
func (d *Door) Drain(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d.late.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lateWriter is the http.ResponseWriter of an answer on a connection that was taken over. As
// with net/http, the body is kept until Flush or the end, and has a length if it is sent at once.
type lateWriter struct {
	conn   net.Conn
	back   func(ahead []byte) // gives the connection back to its listener
	ahead  []byte             // what the client has sent after the request
	header http.Header
	status int
	body   []byte
	began  bool // the head was sent; the body is sent in chunks
	err    error
	server *http.Server // nil: unknown
}

// abort closes the connection after a panic, and logs that, as net/http does.
func (w *lateWriter) abort(panicked any) {
	logf := log.Printf
	if w.server != nil && w.server.ErrorLog != nil {
		logf = w.server.ErrorLog.Printf
	}
	logf("http: panic serving %v: %v\n%s", w.conn.RemoteAddr(), panicked, debug.Stack())
	w.conn.Close()
}

func (w *lateWriter) Header() http.Header { return w.header }

func (w *lateWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *lateWriter) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), w.err
}

// SetWriteDeadline implements the method of http.ResponseController. Every write has a limit.
func (w *lateWriter) SetWriteDeadline(time.Time) error { return w.err }

// FlushError implements the method of http.ResponseController.
func (w *lateWriter) FlushError() error {
	var out []byte
	if !w.began {
		out = w.head("Transfer-Encoding: chunked")
	}
	w.began = true
	if len(w.body) > 0 {
		out = appendChunk(out, w.body)
	}
	return w.send(out)
}

// end sends the rest of the answer, and gives the connection back or closes it.
func (w *lateWriter) end() {
	var out []byte
	switch {
	case !w.began:
		out = append(w.head("Content-Length: "+strconv.Itoa(len(w.body))), w.body...)
	case len(w.body) > 0:
		out = append(appendChunk(nil, w.body), lastChunk...)
	default:
		out = []byte(lastChunk)
	}
	if w.send(out) != nil {
		w.conn.Close()
		return
	}
	w.back(w.ahead)
}

// head returns the head of the answer. framing is the line that says where its body ends.
func (w *lateWriter) head(framing string) []byte {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", w.status, http.StatusText(w.status))
	_ = w.header.WriteSubset(&b, map[string]bool{"Content-Length": true})
	fmt.Fprintf(&b, "Date: %s\r\n%s\r\n\r\n", time.Now().UTC().Format(http.TimeFormat), framing)
	return b.Bytes()
}

// send writes to the connection, and returns the first error of all writes.
func (w *lateWriter) send(b []byte) error {
	w.body = nil
	if w.err == nil {
		w.err = w.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	}
	if w.err == nil {
		_, w.err = w.conn.Write(b)
	}
	return w.err
}
