package audit

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
	next    *group   // collects
	spare   []*group // settled and read by all
	tip     tip      // the last record in the file
	file    *os.File // the segment; only the leader changes it, under mu and syncMu
	dirty   bool     // something was written since the last fsync
	ticking bool     // the keeper looks again by itself within laterDelay
	broken  error    // a failed fsync: final
	trouble error    // why the last write failed; nil: it did not
	refused int64    // Appends that failed since trouble began
	lost    int64    // Later records dropped since then

	// Of the leader alone.
	out     []byte
	callers callers // in the segment
	number  int     // of the segment
	size    int64   // length of the segment up to the last record
	uncut   bool    // bytes may stand behind size that have to be cut off first
	signed  bool    // a checkpoint exists, so that records may follow

	turn  atomic.Bool // the next record begins a new segment
	cutMu sync.Mutex  // held while the log gets another beginning; taken before syncMu

	// syncMu is held while a segment is synced or changed, and for the
	// checkpoints. It is taken before mu, never while holding it.
	syncMu      sync.Mutex
	checkpoints checkpointFile
	nextCheck   time.Time // when the keeper writes the next checkpoint

	kick chan struct{} // wakes the keeper
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
	body := appendBody(scratch[:0], r, l.o.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	g := l.next
	index := g.add(body, false)
	if err := l.settle(g); err != nil {
		return 0, err
	}
	return g.first + uint64(index), nil
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
	if first, err = l.appendAll(bodies); err != nil || l.o.Always || len(rs) == 0 {
		return first, err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.sync(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return first, nil
}

func (l *Log) appendAll(bodies []body) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, fmt.Errorf("%w: it is closed", ErrUnavailable)
	case len(bodies) == 0:
		return 0, nil
	}
	g := l.next
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
	if l.trouble != nil && len(l.next.bodies)+len(body.text) > laterLimit {
		l.lost++
		return
	}
	l.next.add(body, true)
	l.wake()
	if l.trouble == nil && len(l.next.bodies) > laterBytes {
		_ = l.settle(l.next) // a failure is counted and kept in trouble
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
			l.lead() // g is l.next: a group leaves that place only when it is led
		}
	}
	err := g.err
	if g.users--; g.users == 0 {
		l.spare = append(l.spare, g)
	}
	return err
}

// lead writes the group that has collected. The caller holds mu; it is not held
// during the write.
func (l *Log) lead() {
	g, end := l.next, l.tip
	l.next = l.fresh()
	l.busy = true
	refused, lost, err := l.refused, l.lost, l.broken
	notices := l.notices()
	l.mu.Unlock()

	first := end.seq + 1 + uint64(len(notices))
	size := len(g.bodies) + len(g.items)*lineRest
	for _, n := range notices {
		size += len(n.text) + lineRest
	}
	if err == nil {
		err = l.store(int64(size), func() []byte {
			t := l.tip // nobody else moves it
			out := l.lines(notices, g, &t)
			end = t
			return out
		})
	}

	l.mu.Lock()
	l.busy = false
	if err == nil {
		l.tip = end
		g.first = first + uint64(g.front)
		l.succeeded(size > 0, refused, lost)
	} else {
		g.err = l.failed(g, err)
	}
	l.release(g)
}

// lines are the records of a write, behind *t, which is moved on.
func (l *Log) lines(notices []body, g *group, t *tip) []byte {
	out := l.out[:0]
	for _, n := range notices {
		out = appendLine(out, n, t, &l.callers)
	}
	g.each(func(b body, _ bool) { out = appendLine(out, b, t, &l.callers) })
	if l.out = out; cap(out) > maxKept {
		l.out = nil
	}
	return out
}

// release ends the wait of g's users and lets one of the next group lead.
func (l *Log) release(g *group) {
	g.done = true
	g.result.Broadcast()
	if l.next.users > 0 {
		l.next.result.Signal()
	}
}

func (l *Log) fresh() *group {
	n := len(l.spare)
	if n == 0 {
		return newGroup(&l.mu)
	}
	g := l.spare[n-1]
	l.spare = l.spare[:n-1]
	g.reset()
	return g
}

// succeeded notes a write that also reported the numbers of refused and lost
// records. The caller holds mu.
func (l *Log) succeeded(wrote bool, refused, lost int64) {
	if !wrote {
		return
	}
	if l.trouble != nil {
		l.o.Log.Warn("audit log can be written again", "dir", l.dir, "refused", refused, "lost", lost)
		l.trouble = nil
	}
	l.refused -= refused
	l.lost -= lost
	if !l.o.Always {
		l.dirty = true
	}
	l.wake()
}

// failed notes that g was not written, and returns the error for its Appends. The
// Later records of g go back into the queue. The caller holds mu.
func (l *Log) failed(g *group, err error) error {
	if l.trouble == nil {
		l.o.Log.Error("audit log cannot be written; acts that need a record are refused", "dir", l.dir, "error", err)
	}
	l.trouble = err
	for _, it := range g.items {
		if !it.later {
			l.refused++
		}
	}
	l.lost += g.keepLater(l.next, laterLimit)
	l.wake()
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// notices are the bodies of the events that say what trouble has cost; they
// come first when there is space again.
func (l *Log) notices() (bodies []body) {
	if l.refused > 0 {
		bodies = append(bodies, l.event("audit.refused", l.refused, 0, "records that could not be written; their acts were refused"))
	}
	if l.lost > 0 {
		bodies = append(bodies, l.event("audit.lost", l.lost, 0, "outcomes and events dropped while the log could not be written"))
	}
	return bodies
}

// event returns the body of an event about the log itself.
func (l *Log) event(action string, count, bytes int64, reason string) body {
	r := Record{Kind: Event, Source: "audit", Action: action, Count: count, Bytes: bytes, Reason: reason}
	return appendBody(nil, &r, l.o.Now())
}

// State says how the log is doing. It waits for no write.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Seq: l.tip.seq, State: StateOK, Refused: uint64(l.refused), Lost: uint64(l.lost)}
	err := l.trouble
	if l.broken != nil {
		err = l.broken
	}
	if err == nil {
		return s
	}
	s.State, s.Reason = StateFailed, err.Error()
	if isSpace(err) && l.broken == nil {
		s.State = StateFull
	}
	return s
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
	g := l.next
	g.add(l.event("audit.stop", 0, 0, ""), false)
	err := l.settle(g)
	l.mu.Unlock()

	close(l.stop)
	<-l.gone
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err == nil {
		err = errors.Join(l.sync(), l.checkpoint())
	}
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return errors.Join(err, unlock(l.lock))
}
