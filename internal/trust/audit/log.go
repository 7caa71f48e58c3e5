package audit

// Appending. Invariant: records get their numbers in the order in which they
// were appended, and an Append that returned without an error has its line in
// the file.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

const (
	// laterDelay is the longest time that a Later record waits for a write.
	laterDelay = 50 * time.Millisecond
	// laterBytes is the size of the waiting records above which Later writes them itself.
	laterBytes = 256 << 10
	// laterLimit is the most bytes of records kept while the log cannot be written;
	// further Later records are dropped and counted.
	laterLimit = 1 << 20
)

// Log is an open audit log; it may be used from any number of goroutines. Open
// makes one, Close ends it.
//
// The first appender while no write is in progress becomes the leader: it takes the
// collected group, writes it without holding mu, and publishes the result.
// Appenders that arrive meanwhile join the next group and wait; one of them leads
// it. An Append without concurrency therefore completes on its own goroutine.
type Log struct {
	dir  string
	o    Options
	lock *os.File

	mu      sync.Mutex
	busy    bool // there is a leader
	closed  bool
	next    *group  // collects records
	written *group  // was written before next; the group after next uses its buffers
	tip     tip     // the last record in the file
	end     int64   // its end in the segment
	dirty   bool    // something was written since the last fsync
	broken  error   // a failed fsync: final
	trouble trouble // since the last write that succeeded
	alarm   alarm

	// Used by the leader only.
	seg    segment // its file is also read under mu or syncMu
	signed bool    // a checkpoint exists, so that records may follow

	turn  atomic.Bool // the next record begins a new segment
	cutMu sync.Mutex  // held while the beginning is changed; taken before syncMu

	// syncMu is held while the segment is synced or changed, and guards checkpoints
	// and nextCheck. It is taken before mu, never while holding it.
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
	buf := bodies.Get().(*[4096]byte)
	defer bodies.Put(buf)
	return l.appendAll(makeBody(buf[:0], r, l.o.Now()))
}

// AppendGroup records rs one behind the other and returns the number of the
// first. They are on the disk when it returns without an error, with either value of
// Options.Always: it is for acts whose effect is durable too. Concurrent groups
// share a sync. An error of the sync leaves the lines in the file, so that the log may
// hold records of acts that did not happen.
func (l *Log) AppendGroup(rs []*Record) (first uint64, err error) {
	var bodies []body
	for _, r := range rs {
		bodies = append(bodies, makeBody(make([]byte, 0, 512), r, l.o.Now()))
	}
	if first, err = l.appendAll(bodies...); err != nil || l.o.Always || len(rs) == 0 {
		return first, err
	}
	if err := l.synced(); err != nil {
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
	g := l.next
	index := g.next()
	for _, b := range bodies {
		g.add(b, false)
	}
	if err := l.settle(g); err != nil {
		return 0, err
	}
	return g.first + uint64(index), nil
}

// Later records r without waiting for the write. The place of r in the order is fixed at
// once, and r reaches the file with the next Append or within 50 ms. While the log cannot
// be written r is kept, up to a limit; lost records are counted, and an event
// reports the number. After Close, Later does nothing.
func (l *Log) Later(r *Record) {
	buf := bodies.Get().(*[4096]byte)
	defer bodies.Put(buf)
	body := makeBody(buf[:0], r, l.o.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.trouble.why != nil && l.next.size+len(body.text) > laterLimit {
		l.trouble.lost++
		return
	}
	l.next.add(body, true)
	l.alarm.wake()
	if l.trouble.why == nil && l.next.size > laterBytes {
		_ = l.settle(l.next) // a failure is counted and kept in trouble
	}
}

// settle waits until g was written or has failed, and becomes the leader when there
// is none. The caller holds mu.
func (l *Log) settle(g *group) error {
	for !g.done {
		if l.busy {
			g.awaited = true
			g.result.Wait()
		} else {
			l.lead() // g is l.next: a group leaves that place only when it is led
		}
	}
	return g.err
}

// alone is the most records that wait when one caller makes acts one after the other: the
// outcome of the last and the decision of the next.
const alone = 2

// lead writes the collected group, which has a record. The caller holds mu; lead releases it
// during the write. With more than one caller lead first lets other goroutines run, so that
// what they append is part of the write.
func (l *Log) lead() {
	if l.busy = true; len(l.next.items) > alone {
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	g, end := l.next, l.tip
	l.next = l.written.emptied()
	refused, lost, err := l.trouble.refused, l.trouble.lost, l.broken
	var notices group
	l.trouble.notices(&notices, l.o.Now)
	l.mu.Unlock()

	if err == nil {
		end, err = l.store(&notices, g)
	}

	l.mu.Lock()
	l.busy = false
	if err == nil {
		g.first = l.tip.seq + 1 + uint64(len(notices.items)+g.front)
		l.tip, l.end = end, l.seg.size
		l.dirty = l.dirty || !l.o.Always
		l.trouble.over(l.o.Log, refused, lost)
	} else {
		g.err = l.trouble.began(l.o.Log, g, l.next, err)
	}
	l.alarm.wake()
	g.done, l.written = true, g
	g.result.Broadcast()
	l.next.result.Signal() // an appender that waits for it leads it
}

// State returns the condition of the log. It does not wait for a write.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble.state(State{Seq: l.tip.seq}, l.broken)
}

// Close writes the waiting records, the event audit.stop and a last checkpoint, and
// releases the lock. Append fails afterwards. Close may be called again.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.gone
		return nil
	}
	l.closed = true
	g := l.next
	g.add(event(l.o.Now(), Record{Action: "audit.stop"}), false)
	err := l.settle(g)
	l.mu.Unlock()

	close(l.stop)
	<-l.gone
	if err == nil {
		err = l.secure()
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.seg.file != nil {
		err = errors.Join(err, l.seg.file.Close())
	}
	return errors.Join(err, durable.Unlock(l.lock))
}

// Dir returns the directory of the log.
func (l *Log) Dir() string { return l.dir }

// Turn makes the next record begin a new segment, so that the present one is closed and
// can be removed.
func (l *Log) Turn() { l.turn.Store(true) }
