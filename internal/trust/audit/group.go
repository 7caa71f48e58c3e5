package audit

// Groups of records. Invariant: a record that somebody waits for is written or
// refused, never both, and no record is lost uncounted.

import "sync"

// group is the records of one write, in the order in which they were appended.
// While one group is written the next one collects, so that concurrent appenders
// share a write. Log.mu guards all of it, except that bodies and items belong to
// the leader while it writes.
type group struct {
	bodies []byte
	items  []item
	front  int // how many of items were put in front after add gave indexes out

	users  int // Appends that still have to read the result
	done   bool
	err    error
	first  uint64    // seq of the record with index 0, when done without err
	result sync.Cond // signalled when done, or when a user should lead
}

// item is one record: where its body ends, where in the body the caller stands, and
// whether an appender waits for it.
type item struct {
	end, from, to int
	later         bool
}

// maxKept is how many bytes of a group's buffer are kept for the next one.
const maxKept = 1 << 20

func newGroup(mu *sync.Mutex) *group {
	g := &group{}
	g.result.L = mu
	return g
}

// add appends a record; its seq will be the group's first plus index.
func (g *group) add(b body, later bool) (index int) {
	g.bodies = append(g.bodies, b.text...)
	g.items = append(g.items, item{len(g.bodies), b.from, b.to, later})
	return len(g.items) - 1 - g.front
}

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

// keepLater puts the Later records of a group that failed in front of those of
// next, as far as they fit below limit bytes together; lost is how many did not.
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

// queue is the group that collects, and the ones that can be used again. Log.mu
// guards it.
type queue struct {
	next  *group
	spare []*group // settled and read by all
}

// collect lets a new group collect.
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

// leave is called by a user of g who has read the result.
func (q *queue) leave(g *group) {
	if g.users--; g.users == 0 {
		q.spare = append(q.spare, g)
	}
}

// release ends the wait of g's users and lets one of the next group lead.
func (q *queue) release(g *group) {
	g.done = true
	g.result.Broadcast()
	if q.next.users > 0 {
		q.next.result.Signal()
	}
}
