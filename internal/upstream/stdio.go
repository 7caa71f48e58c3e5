package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/upstream/process"
)

// After a child has ended, or was told to, its output is read on for a while:
// what it said last may be an answer. These bound that, should a stranger hold
// the other end of the pipe.
const (
	lastWords    = 250 * time.Millisecond // after its end
	farewellTime = 10 * time.Second       // after Stop: longer than the runner's ladder
)

// stdioConn is a child and what it says.
type stdioConn struct {
	stream
	proc    *process.Process
	started time.Time
	out     lineWriter
	quiet   atomic.Bool   // its end says nothing about the server: asked for, or a probe's
	worked  atomic.Bool   // its handshake was completed
	key     atomic.Uint64 // of what its handshake says
	noted   sync.Once
}

// startChild starts the server's program and reads from it. hello is what a client's handshake will say, nil for our own.
func (s *Server) startChild(modern bool, hello []byte, on func(Event)) (*stdioConn, error) {
	key := helloKey(hello)
	if wait := s.backoff.wait(key, time.Now()); wait > 0 {
		return nil, &fault{kind: ErrOpen, reason: fmt.Sprintf("it keeps ending, next start in %s", wait.Round(time.Millisecond)), retry: wait}
	}
	started := time.Now()
	s.said.begin()
	proc, err := s.deps.Runner.Start(process.Spec{
		Server: s.def.Name, Path: s.def.Path, Args: s.def.Args, Env: s.def.Env, Dir: s.def.Dir, Sandbox: s.def.Sandbox, Stderr: s.stderr(),
	})
	switch {
	case errors.Is(err, process.ErrTooMany):
		return nil, newFault(ErrBusy, "")
	case err != nil:
		s.backoff.ended(ours, started, time.Now())
		return nil, newFaultf(ErrNotSent, "the server cannot be started", err)
	}
	c := &stdioConn{proc: proc, started: started}
	c.key.Store(key)
	c.quiet.Store(modern) // until the probe has succeeded
	c.stream.init(s, modern, on)
	c.out = lineWriter{f: proc.Stdin, lock: make(chan struct{}, 1), over: c.done}
	c.carry, c.gone, c.mourn = c.send, proc.Done(), c.hurry
	go c.read()
	go func() {
		<-proc.Done()
		c.noteStatus()
	}()
	return c, nil
}

// noteStatus keeps how the process ended.
func (c *stdioConn) noteStatus() {
	how := "exit status 0"
	if err := c.proc.Err(); err != nil {
		how = err.Error()
	}
	c.srv.said.ended(how)
}

// awaitStatus waits a moment for the end of a process whose output has ended, so that
// whoever is told of the end is told how it was. False: the process goes on.
func (c *stdioConn) awaitStatus() bool {
	select {
	case <-c.proc.Done():
		c.noteStatus()
		return true
	case <-time.After(lastWords):
		return false
	}
}

// Pause is how long the server's next start for a handshake with initParams has
// to wait because its last process ended by itself; 0: not at all. A Dial
// before that fails at once.
func (s *Server) Pause(initParams []byte) time.Duration {
	return s.backoff.wait(helloKey(initParams), time.Now())
}

// stderr is where a child's standard error goes.
func (s *Server) stderr() func(string) {
	return func(line string) {
		s.said.add(line)
		if s.def.KeepStderr {
			s.log.Info("server stderr", slog.String("line", line))
		}
		if s.deps.Stderr != nil {
			s.deps.Stderr(s.def.Name, line)
		}
	}
}

// read brings every line to its place until the output ends, and then ends the
// rest. It is the only reader, and it closes what it read from.
func (c *stdioConn) read() {
	defer c.proc.Stdout.Close()
	lines := newLineReader(c.proc.Stdout, c.srv.def.MaxMessage)
	defer lines.close()
	for {
		line, owned, err := lines.next()
		var long *longLine
		switch {
		case err == nil:
			err = c.intake.accept(line, owned)
		case errors.As(err, &long):
			c.intake.tooLong(long)
			continue
		}
		if err != nil {
			c.broke(err)
			return
		}
	}
}

// broke ends the connection because of err, which the reader met.
func (c *stdioConn) broke(err error) {
	var f *fault
	switch {
	case errors.As(err, &f):
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		c.awaitStatus()
		err = newFault(ErrLost, "the server ended")
	default:
		err = newFaultf(ErrLost, "reading from the server", err)
	}
	c.noteEnd(err)
	c.fail(err)
	c.proc.Stop()
}

// noteEnd lengthens the pause before the next start, when this end was the
// child's own doing.
func (c *stdioConn) noteEnd(err error) {
	if c.quiet.Load() {
		return
	}
	c.noted.Do(func() {
		started, key := c.started, c.key.Load()
		if c.worked.Load() {
			// It has served a call. A client that can crash its own instance must not
			// delay the starts of others.
			started, key = time.Time{}, ours
		}
		wait := c.srv.backoff.ended(key, started, time.Now())
		c.srv.log.Warn("server connection broke", slog.Any("reason", err),
			slog.Duration("backoff", wait), slog.Any("counts", c.srv.Counts()))
	})
}

// hurry lets the reader finish soon: the child is gone, so that nothing but
// what is in the pipe can come.
func (c *stdioConn) hurry() {
	_ = c.proc.Stdout.SetReadDeadline(time.Now().Add(lastWords)) // fails on a closed file: finished already
}

// send writes one line. A child that has closed its standard input is over,
// whatever else it does.
func (c *stdioConn) send(ctx context.Context, expire <-chan time.Time, b []byte) (begun bool, err error) {
	begun, err = c.out.write(ctx, expire, b)
	if err == nil || isPatience(err) {
		return begun, err
	}
	c.hurry()
	if !c.awaitStatus() {
		return begun, err
	}
	// Until the reader, which is in a hurry, has ended the connection, a caller that is
	// told of the end would find it open, and send there again.
	select {
	case <-c.done:
	case <-time.After(2 * lastWords): // a slow receiver keeps the reader
	}
	if begun {
		return begun, newFault(ErrLost, "the server ended")
	}
	return begun, newFault(ErrNotSent, "the server ended")
}

// Close implements Conn.
func (c *stdioConn) Close() { c.stop(errClosed) }

// stop ends the connection on our side.
func (c *stdioConn) stop(end error) {
	c.quiet.Store(true)
	c.fail(end)
	c.proc.Stop()
	_ = c.proc.Stdout.SetReadDeadline(time.Now().Add(farewellTime)) // fails on a closed file: finished already
}

// stalled is how long one write may block before its caller's patience is
// looked at again.
const stalled = 50 * time.Millisecond

// lineWriter writes whole lines to a child. One line is one write. A child that
// does not read blocks its writer for the writer's own timeout, and other writers
// for the lock, which each of them stops waiting for by its own context.
type lineWriter struct {
	f     *os.File
	lock  chan struct{}   // capacity 1: a mutex that can be given up on, and handed on
	over  <-chan struct{} // the connection ended
	until time.Time       // the write deadline in force; guarded by the lock
}

// write writes b. begun tells, beside an error, that the server may come to see
// the line: part of it was written, and the rest follows in the background,
// since half a line would spoil the next.
func (w *lineWriter) write(ctx context.Context, expire <-chan time.Time, b []byte) (begun bool, err error) {
	if err := w.acquire(ctx, expire); err != nil {
		return false, err
	}
	rest, err := w.attempt(ctx, expire, b)
	begun = len(rest) < len(b)
	if err == nil || !begun || !isPatience(err) {
		<-w.lock
		return begun, err
	}
	go w.finish(append([]byte(nil), rest...))
	return begun, err
}

func (w *lineWriter) acquire(ctx context.Context, expire <-chan time.Time) error {
	select {
	case w.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case w.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-expire:
		return newFault(ErrTimeout, "the server does not read")
	case <-w.over:
		return newFault(ErrNotSent, "the connection is closed")
	}
}

// attempt writes as long as the caller waits, and returns what is left.
func (w *lineWriter) attempt(ctx context.Context, expire <-chan time.Time, b []byte) (rest []byte, err error) {
	rest = b
	for {
		w.refresh()
		n, err := w.f.Write(rest)
		rest = rest[n:]
		switch {
		case err == nil:
			return nil, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return rest, writeFault(len(rest) < len(b), err)
		}
		select {
		case <-ctx.Done():
			return rest, ctx.Err()
		case <-expire:
			return rest, newFault(ErrTimeout, "the server does not read")
		default:
		}
	}
}

// writeFault: a server that saw nothing of a line has not run it; nor, in
// truth, has one that saw half of it, but who knows how it reads.
func writeFault(begun bool, err error) error {
	if begun {
		return newFaultf(ErrLost, "writing to the server", err)
	}
	return newFaultf(ErrNotSent, "writing to the server", err)
}

// refresh keeps the write deadline ahead. Setting it costs more than the rest
// of a write, so busy connections do it now and then only.
func (w *lineWriter) refresh() {
	now := time.Now()
	if w.until.Sub(now) > stalled/2 {
		return
	}
	w.until = now.Add(stalled)
	_ = w.f.SetWriteDeadline(w.until) // fails on a closed file: the write tells
}

// finish writes the rest of a line whose caller is gone, however long it takes;
// the end of the process ends it too. It holds the lock meanwhile.
func (w *lineWriter) finish(rest []byte) {
	_ = w.f.SetWriteDeadline(time.Time{})
	_, _ = w.f.Write(rest) // when this fails the connection is over, which its reader notices
	w.until = time.Time{}
	<-w.lock
}

// isPatience reports whether err is the caller's patience ending.
func isPatience(err error) bool {
	return isContext(err) || errors.Is(err, ErrTimeout)
}
