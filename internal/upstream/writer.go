package upstream

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// stalled is how long one write may block before its caller's limits are checked again.
const stalled = 50 * time.Millisecond

// lineWriter writes whole lines to a child. The line of a call that comes during a write is added
// to the queue, and the goroutine that writes takes the queue along, so that many calls share a
// write and the child reads them at once. A child that does not read blocks the writing caller
// until that caller's limit; other callers, in the queue or waiting for the lock, until their
// own limits.
type lineWriter struct {
	f      *os.File
	lock   chan struct{}   // capacity 1: a mutex whose wait can be given up, and that another goroutine may release
	over   <-chan struct{} // the connection ended
	failed func()          // called after the failure of a write that no caller waits for
	until  time.Time       // the write deadline in force; guarded by the lock
	alone  lines           // the line that is written alone, and
	own    [1]line         // its call; guarded by the lock
	queue  lineQueue
}

// write writes b, which it does not keep. With share, calls that are about to be written can
// add their lines first. begun reports, beside an error, that the server may see the line: part
// of it was written, and the rest follows in the background, because half a line would spoil
// the next one.
func (w *lineWriter) write(ctx context.Context, expire <-chan time.Time, b []byte, share bool) (begun bool, err error) {
	if err := w.acquire(ctx, expire); err != nil {
		return false, err
	}
	return w.writeAll(ctx, expire, w.gather(b, share), len(b))
}

// gather opens the queue, and returns the line b with those that others add to it.
func (w *lineWriter) gather(b []byte, share bool) *lines {
	if share && len(b) <= longestShared {
		w.queue.open(b)
		runtime.Gosched() // goroutines that can run add their lines
		return w.queue.take()
	}
	w.queue.open(nil)
	w.own[0].size = len(b)
	w.alone = lines{text: b, calls: w.own[:], borrowed: true}
	return &w.alone
}

// writeAll writes l, whose first own bytes are the caller's line. It gives the lock back, or
// leaves it to a goroutine that writes what remains.
func (w *lineWriter) writeAll(ctx context.Context, expire <-chan time.Time, l *lines, own int) (begun bool, err error) {
	n, err := w.attempt(ctx, expire, l, own)
	switch {
	case err != nil && !isPatience(err):
		w.queue.fail(l, n)
		<-w.lock
		return n > 0, err
	case n == 0:
		l.drop() // the caller has given its line up
	}
	rest := w.queue.putBack(l, n)
	if len(rest) == 0 && w.queue.close() {
		<-w.lock
	} else {
		go w.finish(rest)
	}
	return n > 0, err
}

func (w *lineWriter) acquire(ctx context.Context, expire <-chan time.Time) error {
	select {
	case w.lock <- struct{}{}:
		return nil
	default:
	}
	w.queue.wait(1)
	defer w.queue.wait(-1)
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

// attempt writes l as long as the caller waits, and returns how much of it was written. The
// first own bytes are the caller's line; the caller does not wait for the others if the child
// does not read.
func (w *lineWriter) attempt(ctx context.Context, expire <-chan time.Time, l *lines, own int) (n int, err error) {
	for {
		w.refresh()
		m, err := w.f.Write(l.text[n:])
		n += m
		switch {
		case err == nil:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return n, writeFault(n > 0, err)
		case n >= own:
			return n, nil
		}
		w.queue.forget(l, n)
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-expire:
			return n, newFault(ErrTimeout, "the server does not read")
		default:
		}
	}
}

// writeFault returns the error of a failed write. A server that got no byte of a line has not
// run it. One that got a part of it probably has not either, but that is not certain.
func writeFault(begun bool, err error) error {
	if begun {
		return newFaultf(ErrLost, "writing to the server", err)
	}
	return newFaultf(ErrNotSent, "writing to the server", err)
}

// refresh keeps the write deadline in the future. Setting it costs more than the rest of a
// write, so it is set only when little of it is left.
func (w *lineWriter) refresh() {
	now := time.Now()
	if w.until.Sub(now) > stalled/2 {
		return
	}
	w.until = now.Add(stalled)
	_ = w.f.SetWriteDeadline(w.until) // fails on a closed file; the write then returns the error
}

// finish writes the rest of a line, and then the queue until it is empty. It gives the lock
// back at the end.
func (w *lineWriter) finish(rest []byte) {
	err := w.complete(rest)
	for err == nil && !w.queue.close() {
		l, n := w.queue.take(), 0
		if n, err = w.attempt(context.Background(), nil, l, 0); err == nil {
			err = w.complete(w.queue.putBack(l, n))
		} else {
			w.queue.fail(l, n)
		}
	}
	if err != nil {
		w.queue.fail(new(lines), 0)
		w.failed()
	}
	<-w.lock
}

// complete writes the rest of a line without a time limit. The end of the process ends it.
func (w *lineWriter) complete(rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	_ = w.f.SetWriteDeadline(time.Time{}) // fails on a closed file; the write then returns the error
	w.until = time.Time{}
	_, err := w.f.Write(rest)
	return err
}
