package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/upstream/process"
)

// After a child has ended, or was told to, its output is still read for a while, because its
// last message may be an answer. These bounds hold if a foreign process keeps the other end
// of the pipe open.
const (
	lastWords    = 250 * time.Millisecond // after its end
	farewellTime = 10 * time.Second       // after Stop: longer than all its steps take
)

// stdioConn is a connection to a child over its standard streams.
type stdioConn struct {
	stream
	proc    *process.Process
	started time.Time
	out     lineWriter
	quiet   atomic.Bool   // its end does not count against the server: it was requested, or is that of a probe
	worked  atomic.Bool   // its handshake was completed
	key     atomic.Uint64 // of its handshake, see helloKey
	words   *diagnostics  // its last lines on standard error
	cut     atomic.Bool   // its output ended during a call
	noted   sync.Once
	fallen  sync.Once
	hasty   sync.Once
}

// startChild starts the server's program and reads from it. hello is a client's initialize
// params, nil for Doorward's own handshake.
func (s *Server) startChild(modern bool, hello []byte, on func(Event)) (*stdioConn, error) {
	key := helloKey(hello)
	if wait := s.backoff.wait(key, time.Now()); wait > 0 {
		return nil, &fault{kind: ErrOpen, reason: fmt.Sprintf("it ended repeatedly, next start in %s", wait.Round(time.Millisecond)), retry: wait}
	}
	c := &stdioConn{started: time.Now(), words: new(diagnostics)}
	s.diagnostics.begin()
	proc, err := s.deps.Runner.Start(process.Spec{
		Server: s.def.Name, Path: s.def.Path, Args: s.def.Args, Env: s.def.Env, Dir: s.def.Dir, Sandbox: s.def.Sandbox, Stderr: s.stderr(c.words),
	})
	switch {
	case errors.Is(err, process.ErrTooMany):
		return nil, newFault(ErrBusy, "")
	case err != nil:
		s.backoff.ended(ours, c.started, time.Now())
		return nil, newFaultf(ErrNotSent, "the server cannot be started", err)
	}
	c.proc = proc
	c.key.Store(key)
	c.quiet.Store(modern) // until the probe has succeeded
	c.stream.init(s, modern, on)
	c.out = lineWriter{f: proc.Stdin, lock: make(chan struct{}, 1), over: c.done, failed: c.hurry}
	c.lines = &c.out.queue
	c.carry, c.gone, c.onEnd = c.send, proc.Done(), c.hurry
	go c.read()
	go func() {
		<-proc.Done()
		how := c.noteStatus()
		<-c.done // the reader has found out whether a call is unanswered
		noteFall(c, how, c.proc.Err() != nil)
	}()
	return c, nil
}

// noteStatus records how the process ended, and returns it.
func (c *stdioConn) noteStatus() string {
	how := statusOf(c.proc)
	if c.proc.Err() != nil {
		how += npmLog(c.srv)
	}
	c.srv.diagnostics.ended(how)
	return how
}

// noteFall keeps how the process ended, unless that was requested, or it never worked, or it ended
// without an error and without a call. Whether a call is unanswered is known when its output was read.
func noteFall(c *stdioConn, reason string, failed bool) {
	c.fallen.Do(func() {
		calls := c.cut.Load()
		if c.worked.Load() && !c.quiet.Load() && (calls || failed) {
			c.srv.falls.add(Fall{Reason: reason, Calls: calls, Last: time.Now(), words: c.words})
		}
	})
}

// npmLog says where the log of npm is if npx ended without a word, as it does when a package cannot be installed.
func npmLog(s *Server) string {
	if _, lines := s.LastWords(); len(lines) > 0 || filepath.Base(s.def.Path) != "npx" {
		return ""
	}
	home := "your home directory"
	if box := s.def.Sandbox; box.Mode != "" {
		home = box.Home + " in the state directory"
	}
	return "; the log of npm is in .npm/_logs in " + home
}

// awaitStatus waits a moment for the end of a process whose output has ended, so that an
// error of that end is reported with its exit status. False: the process is still running.
func (c *stdioConn) awaitStatus() bool {
	select {
	case <-c.proc.Done():
		c.noteStatus()
		return true
	case <-time.After(lastWords):
		return false
	}
}

// Pause returns how long the server's next start for a handshake with initParams has to wait
// because its last process ended by itself; 0: not at all. A Dial before that fails at once.
func (s *Server) Pause(initParams []byte) time.Duration {
	return s.backoff.wait(helloKey(initParams), time.Now())
}

// stderr returns the receiver of a child's standard error, which also keeps its last lines.
func (s *Server) stderr(words *diagnostics) func(string) {
	return func(line string) {
		s.diagnostics.add(line)
		words.add(line)
		if s.def.KeepStderr {
			s.log.Info("server stderr", slog.String("line", line))
		}
		if s.deps.Stderr != nil {
			s.deps.Stderr(s.def.Name, line)
		}
	}
}

// read passes on every line until the output ends, and then ends the connection. It is the
// only reader, and it closes the pipe.
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
			err = c.intake.tooLong(long)
		}
		if err != nil {
			c.broke(err)
			return
		}
	}
}

// broke ends the connection because of an error of the reader.
func (c *stdioConn) broke(err error) {
	var f *fault
	c.cut.Store(c.pending.busy())
	switch {
	case errors.As(err, &f):
		noteFall(c, err.Error(), true)
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		if c.awaitStatus() {
			noteFall(c, c.noteStatus(), c.proc.Err() != nil)
		}
		err = newFault(ErrLost, "the server ended")
	default:
		err = newFaultf(ErrLost, "reading from the server", err)
	}
	c.noteEnd(err)
	c.fail(err)
	c.proc.Stop()
}

// noteEnd lengthens the pause before the next start, if the child ended by itself.
func (c *stdioConn) noteEnd(err error) {
	if c.quiet.Load() {
		return
	}
	c.noted.Do(func() {
		started, key := c.started, c.key.Load()
		if c.worked.Load() {
			// It has worked. A client that can crash its own instance must not delay the
			// starts of others.
			started, key = time.Time{}, ours
		}
		wait := c.srv.backoff.ended(key, started, time.Now())
		c.srv.log.Warn("server connection broke; if it was used, doorward status shows the last lines of the program on standard error",
			slog.Any("reason", err), slog.String("status", statusOf(c.proc)), slog.Bool("during_call", c.cut.Load()),
			slog.Duration("backoff", wait), slog.Any("counts", c.srv.Counts()))
	})
}

// statusOf says how a process ended, or that it has not ended yet.
func statusOf(p *process.Process) string {
	select {
	case <-p.Done():
	default:
		return "still running"
	}
	if err := p.Err(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// Call implements Conn. An answer shows that the server works again after a fall; that of a list
// does not, because the lists are asked for without a client's call.
func (c *stdioConn) Call(ctx context.Context, r *Request, on func(Event)) (Reply, error) {
	reply, err := c.stream.Call(ctx, r, on)
	switch r.Method {
	case "tools/call", "prompts/get", "resources/read":
		if err == nil {
			c.srv.falls.answered(c.started)
		}
	}
	return reply, err
}

// hurry sets a short deadline for the reader: the child is gone, so only what is in the pipe
// can still come. Only the first time counts, because a later deadline would keep the child in
// use as long as callers come.
func (c *stdioConn) hurry() {
	c.hasty.Do(func() {
		_ = c.proc.Stdout.SetReadDeadline(time.Now().Add(lastWords)) // fails on a closed file: finished already
	})
}

// send writes one line. A child that has closed its standard input counts as ended.
func (c *stdioConn) send(ctx context.Context, expire <-chan time.Time, b []byte) (begun bool, err error) {
	begun, err = c.out.write(ctx, expire, b, c.pending.several())
	if err == nil || isPatience(err) {
		return begun, err
	}
	c.hurry()
	if !c.awaitStatus() {
		return begun, err
	}
	// The reader ends the connection soon. Without this wait, a caller that gets the error
	// could find the connection open and send there again.
	select {
	case <-c.done:
	case <-time.After(2 * lastWords): // a slow receiver can delay the reader
	}
	if begun {
		return begun, newFault(ErrLost, "the server ended")
	}
	return begun, newFault(ErrNotSent, "the server ended")
}

// Close implements Conn.
func (c *stdioConn) Close() { c.stop(errClosed) }

// stop ends the connection from this side.
func (c *stdioConn) stop(end error) {
	c.quiet.Store(true)
	c.fail(end)
	c.proc.Stop()
	_ = c.proc.Stdout.SetReadDeadline(time.Now().Add(farewellTime)) // fails on a closed file: finished already
}
