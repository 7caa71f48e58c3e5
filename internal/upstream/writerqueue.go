package upstream

import (
	"bytes"
	"slices"
	"sync"
)

const (
	// queueRoom is the most bytes of lines that wait for one write.
	queueRoom = 256 << 10
	// longestShared is the longest line that is written together with others, in bytes.
	longestShared = 32 << 10
)

// lineQueue holds the lines of calls that the goroutine with a lineWriter's lock takes along.
//
// A nil queue takes no line.
//
// Invariant: a line is in the queue, was given to a write, or is refused. The queue is closed
// and empty while the lock is free.
type lineQueue struct {
	mu      sync.Mutex
	opened  bool    // the goroutine with the lock takes further lines
	waiting int     // callers that wait for the lock; nothing is added before they have written
	next    *lines  // nil: none
	refused []int64 // calls whose lines are not written, because a write failed
	left    []int64 // calls that were given up after take, for forget
}

// add adds the line b of a call. False: nothing takes it along, or there is no room.
func (q *lineQueue) add(id int64, b []byte) bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.opened || q.waiting > 0 || len(b) > longestShared || q.next.size()+len(b) > queueRoom {
		return false
	}
	q.put(id, b)
	return true
}

func (q *lineQueue) put(id int64, b []byte) {
	if q.next == nil {
		q.next = linePool.Get().(*lines)
	}
	q.next.add(id, b)
}

// withdraw removes the line of a call that was added, and reports whether the server has not
// seen and will not see any of it. The line of a call that is given up during its write is
// left out if the child has not read that far when the write is attempted again.
func (q *lineQueue) withdraw(id int64) bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if at := slices.Index(q.refused, id); at >= 0 {
		q.refused = slices.Delete(q.refused, at, at+1)
		return true
	}
	if q.next != nil && q.next.remove(id, 0) {
		return true
	}
	if q.opened {
		q.left = append(q.left, id)
	}
	return false
}

// forget removes the lines of calls that were given up from l, of which n bytes were written.
func (q *lineQueue) forget(l *lines, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetLocked(l, n)
}

func (q *lineQueue) forgetLocked(l *lines, n int) {
	for _, id := range q.left {
		l.remove(id, n)
	}
	q.left = nil
}

// open lets others add lines behind first; nil: none.
func (q *lineQueue) open(first []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened = true
	if first != nil {
		q.put(0, first)
	}
}

// close closes the queue if it is empty, and reports that.
func (q *lineQueue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened, q.left = q.next.size() > 0, nil
	return !q.opened
}

// take removes and returns the lines of the queue; nil: there are none.
func (q *lineQueue) take() (l *lines) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, q.next, q.left = q.next, nil, nil
	return l
}

// putBack puts the lines of l that begin after its first n bytes back to the front, and
// returns a copy of what is left of the line before them. l may not be used afterwards.
func (q *lineQueue) putBack(l *lines, n int) (rest []byte) {
	if n == len(l.text) {
		l.release()
		return nil
	}
	rest = bytes.Clone(l.cut(n))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetLocked(l, 0)
	if len(l.calls) == 0 {
		l.text = nil
		return rest
	}
	if later := q.next; later != nil {
		l.text, l.calls = append(l.text, later.text...), append(l.calls, later.calls...)
	}
	q.next = l
	return rest
}

// fail closes the queue after a write that failed after n bytes of l, and refuses all lines
// of which nothing was written.
func (q *lineQueue) fail(l *lines, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.cut(n)
	if q.next != nil {
		l.calls = append(l.calls, q.next.calls...)
	}
	for _, c := range l.calls {
		q.refused = append(q.refused, c.id)
	}
	q.opened, q.next = false, nil
}

// wait counts a caller that begins to wait for the lock, or with -1 ends that.
func (q *lineQueue) wait(change int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += change
}

// lines are whole lines, one behind the other.
type lines struct {
	text     []byte
	calls    []line
	borrowed bool // text belongs to the caller of write
}

// line is one of lines.
type line struct {
	id   int64 // of its call; 0: the line of the goroutine that writes
	size int   // in bytes
}

var linePool = sync.Pool{New: func() any { return new(lines) }}

// release makes the memory of l available again.
func (l *lines) release() {
	if l.borrowed || cap(l.text) > 2*longestShared {
		l.text = nil
		return
	}
	l.text, l.calls = l.text[:0], l.calls[:0]
	linePool.Put(l)
}

func (l *lines) size() int {
	if l == nil {
		return 0
	}
	return len(l.text)
}

func (l *lines) add(id int64, b []byte) {
	l.text, l.calls = append(l.text, b...), append(l.calls, line{id, len(b)})
}

// drop removes the first line.
func (l *lines) drop() {
	l.text, l.calls = l.text[l.calls[0].size:], l.calls[1:]
}

// cut removes the lines that begin in the first n bytes, and returns what is behind these
// bytes of the last one.
func (l *lines) cut(n int) (rest []byte) {
	for n > 0 {
		rest = l.text[min(n, l.calls[0].size):l.calls[0].size]
		n -= l.calls[0].size
		l.drop()
	}
	return rest
}

// remove removes the line of a call that begins after the first n bytes. False: it is not there.
func (l *lines) remove(id int64, n int) bool {
	from := 0
	for i, c := range l.calls {
		if c.id == id && from >= n {
			l.text = slices.Delete(l.text, from, from+c.size)
			l.calls = slices.Delete(l.calls, i, i+1)
			return true
		}
		from += c.size
	}
	return false
}
