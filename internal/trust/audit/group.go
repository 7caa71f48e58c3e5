package audit

// Groups of records. Invariant: a record that an appender waits for is written or
// refused, never both, and every lost record is counted.

import "sync"

// group holds the records of one write, in the order in which they were appended.
// While one group is written, the next one collects records, so that concurrent
// appenders share a write. Log.mu guards all of it, except that bodies and items belong
// to the leader while it writes.
type group struct {
	bodies []byte
	items  []item
	front  int // number of items put in front of those whose indexes next returned

	users  int // Appends that have not yet read the result
	done   bool
	err    error
	first  uint64    // seq of the record with index 0, when done without err
	result sync.Cond // signalled when done, or when a user should lead
}

// item is one record of a group: end is the offset in group.bodies behind its body, from
// and to are those of body, later means that no appender waits for it.
type item struct {
	end, from, to int
	later         bool
}

// maxKept is the capacity up to which a group's buffer is reused.
const maxKept = 1 << 20

func newGroup(mu *sync.Mutex) *group {
	g := &group{}
	g.result.L = mu
	return g
}

// add appends a record.
func (g *group) add(b body, later bool) {
	g.bodies = append(g.bodies, b.text...)
	g.items = append(g.items, item{len(g.bodies), b.from, b.to, later})
}

// next returns the index of the next record. The seq of a record is group.first plus its
// index, once the group is written.
func (g *group) next() int { return len(g.items) - g.front }

// each calls fn with every body in order.
func (g *group) each(fn func(b body, later bool)) {
	start := 0
	for _, it := range g.items {
		fn(body{g.bodies[start:it.end], it.from, it.to}, it.later)
		start = it.end
	}
}

func (g *group) reset() {
	if cap(g.bodies) > maxKept {
		g.bodies, g.items = nil, nil
	}
	g.bodies, g.items = g.bodies[:0], g.items[:0]
	g.front, g.done, g.err, g.first = 0, false, nil, 0
}

// keepLater puts the Later records of a failed group in front of the records of next,
// as long as both together are at most limit bytes. lost is the number of records that
// did not fit.
func (g *group) keepLater(next *group, limit int) (lost int64) {
	kept := newGroup(nil)
	g.each(func(b body, later bool) {
		switch {
		case !later:
		case len(kept.bodies)+len(next.bodies)+len(b.text) > limit:
			lost++
		default:
			kept.add(b, true)
		}
	})
	if len(kept.items) == 0 {
		return lost
	}
	front := len(kept.items)
	next.each(func(b body, later bool) { kept.add(b, later) })
	next.bodies, next.items, next.front = kept.bodies, kept.items, next.front+front
	return lost
}

// queue holds the group that collects records, and the groups that can be reused.
// Log.mu guards it.
type queue struct {
	next  *group
	spare []*group // written or failed, and without users
}

// collect makes next an empty group.
func (q *queue) collect(mu *sync.Mutex) {
	n := len(q.spare)
	if n == 0 {
		q.next = newGroup(mu)
		return
	}
	q.next = q.spare[n-1]
	q.spare = q.spare[:n-1]
	q.next.reset()
}

// leave is called by a user of g that has read the result.
func (q *queue) leave(g *group) {
	if g.users--; g.users == 0 {
		q.spare = append(q.spare, g)
	}
}

// release ends the wait of g's users and wakes one user of the next group to lead it.
func (q *queue) release(g *group) {
	g.done = true
	g.result.Broadcast()
	if q.next.users > 0 {
		q.next.result.Signal()
	}
}
