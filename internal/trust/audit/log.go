package audit

// Appending. Invariant: records get their numbers in the order in which they
// were appended, and an Append that returned without an error has its line in
// the file.

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// laterDelay is how long a Later record may wait for a write.
	laterDelay = 50 * time.Millisecond
	// laterBytes is how much Later text may wait before a Later writes itself.
	laterBytes = 256 << 10
	// laterLimit is how much Later text is kept while nothing can be written;
	// beyond it records are dropped and counted.
	laterLimit = 1 << 20
)

// Log is an open audit log; it may be used from any number of goroutines. Open
// makes one, Close ends it.
//
// The first appender while no write is in progress becomes the leader: it takes
// the group that has collected, writes it without holding mu, and settles it.
// Appenders that arrive meanwhile join the next group and wait; one of them leads
// it. An Append without concurrency therefore completes on its own goroutine.
type Log struct {
	dir  string
	o    Options
	lock *os.File

	mu      sync.Mutex
	busy    bool // somebody leads
	closed  bool
	queue   queue
	tip     tip     // the last record in the file
	dirty   bool    // something was written since the last fsync
	broken  error   // a failed fsync: final
	trouble trouble // since the last write that succeeded
	alarm   alarm

	// Of the leader alone.
	out    []byte
	seg    segment // its file is also read under mu or syncMu
	signed bool    // a checkpoint exists, so that records may follow

	turn  atomic.Bool // the next record begins a new segment
	cutMu sync.Mutex  // held while the log gets another beginning; taken before syncMu

	// syncMu is held while a segment is synced or changed, and for the
	// checkpoints. It is taken before mu, never while holding it.
	syncMu      sync.Mutex
	checkpoints checkpointFile
	nextCheck   time.Time // when the keeper writes the next checkpoint

	stop chan struct{}
	gone chan struct{} // closed when the keeper has ended
}

// Append records r and returns its number. When it returns without an error the
// line is in the file and can be read; with Options.Always it is on the disk.
// An error wraps ErrUnavailable, and the act must not happen: nothing was recorded. After
// a failed write the next Append tries again, so that the log recovers when there is
// space; after Close or a failed sync it does not.
func (l *Log) Append(r *Record) (seq uint64, err error) {
	var scratch [1024]byte
	return l.appendAll(appendBody(scratch[:0], r, l.o.Now()))
}

// AppendGroup records rs one behind the other and returns the number of the
// first. Whatever Options.Always says, they are on the disk when it returns
// without an error: it is for acts that are on the disk themselves when they
// are done. Groups that come together share a sync. An error of the sync leaves the lines
// in the file, so that the record may hold acts that were not done.
func (l *Log) AppendGroup(rs []*Record) (first uint64, err error) {
	var bodies []body
	for _, r := range rs {
		bodies = append(bodies, appendBody(nil, r, l.o.Now()))
	}
	if first, err = l.appendAll(bodies...); err != nil || l.o.Always || len(rs) == 0 {
		return first, err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.sync(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return first, nil
}

func (l *Log) appendAll(bodies ...body) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, fmt.Errorf("%w: it is closed", ErrUnavailable)
	case len(bodies) == 0:
		return 0, nil
	}
	g := l.queue.next
	index := g.add(bodies[0], false)
	for _, b := range bodies[1:] {
		g.add(b, false)
	}
	if err := l.settle(g); err != nil {
		return 0, err
	}
	return g.first + uint64(index), nil
}

// Later records r without waiting. Its place in the order is fixed now, and it
// reaches the file with the next Append or within 50 ms. While the log cannot be
// written it is kept, up to a limit; lost records are counted, and an event
// reports the number. After Close it does nothing.
func (l *Log) Later(r *Record) {
	var scratch [1024]byte
	body := appendBody(scratch[:0], r, l.o.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.trouble.why != nil && len(l.queue.next.bodies)+len(body.text) > laterLimit {
		l.trouble.lost++
		return
	}
	l.queue.next.add(body, true)
	l.alarm.wake()
	if l.trouble.why == nil && len(l.queue.next.bodies) > laterBytes {
		_ = l.settle(l.queue.next) // a failure is counted and kept in trouble
	}
}

// settle waits until g was written or given up, and becomes the leader when there
// is none. The caller holds mu and has a record in g, or wants a barrier.
func (l *Log) settle(g *group) error {
	g.users++
	for !g.done {
		if l.busy {
			g.result.Wait()
		} else {
			l.lead() // g is l.queue.next: a group leaves that place only when it is led
		}
	}
	err := g.err
	l.queue.leave(g)
	return err
}

// lead writes the group that has collected. The caller holds mu; it is not held
// during the write.
func (l *Log) lead() {
	g, end := l.queue.next, l.tip
	l.queue.collect(&l.mu)
	l.busy = true
	refused, lost, err := l.trouble.refused, l.trouble.lost, l.broken
	notices := l.trouble.notices(l.o.Now)
	l.mu.Unlock()

	first := end.seq + 1 + uint64(len(notices))
	size := len(g.bodies) + len(g.items)*lineRest
	for _, n := range notices {
		size += len(n.text) + lineRest
	}
	if err == nil {
		err = l.store(int64(size), func() []byte {
			t := l.tip // nobody else moves it
			out := lines(l.out[:0], notices, g, &t, &l.seg.callers)
			if l.out = out; cap(out) > maxKept {
				l.out = nil
			}
			end = t
			return out
		})
	}

	l.mu.Lock()
	l.busy = false
	if err == nil {
		l.tip = end
		g.first = first + uint64(g.front)
		l.dirty = l.dirty || size > 0 && !l.o.Always
		l.trouble.over(l.o.Log, refused, lost, size > 0)
	} else {
		g.err = l.trouble.began(l.o.Log, g, l.queue.next, err)
	}
	l.alarm.wake()
	l.queue.release(g)
}

// lines are the records of a write, behind *t, which is moved on.
func lines(out []byte, notices []body, g *group, t *tip, c *callers) []byte {
	for _, n := range notices {
		out = appendLine(out, n, t, c)
	}
	g.each(func(b body, _ bool) { out = appendLine(out, b, t, c) })
	return out
}

// State says how the log is doing. It waits for no write.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble.state(State{Seq: l.tip.seq}, l.broken)
}

// Close writes what waits and the event audit.stop, a last checkpoint, and
// releases the lock. Later calls of Append fail. It may be called again.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.gone
		return nil
	}
	l.closed = true
	g := l.queue.next
	g.add(event(l.o.Now(), Record{Action: "audit.stop"}), false)
	err := l.settle(g)
	l.mu.Unlock()

	close(l.stop)
	<-l.gone
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err == nil {
		err = errors.Join(l.sync(), l.checkpoint())
	}
	if l.seg.file != nil {
		err = errors.Join(err, l.seg.file.Close())
	}
	return errors.Join(err, unlock(l.lock))
}

// Dir is the directory of the log.
func (l *Log) Dir() string { return l.dir }

// Turn has the next record begin a new segment, so that this one can be removed.
func (l *Log) Turn() { l.turn.Store(true) }
