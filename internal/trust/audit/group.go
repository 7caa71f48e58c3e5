package audit

// Groups of records. Invariant: a record that an appender waits for is written or
// refused, never both, and every lost record is counted.

import "sync"

// group holds the records of one write, in the order in which they were appended.
// While one group is written, the next one collects records, so that concurrent
// appenders share a write. Log.mu guards all of it, except that items and text belong to the
// leader while it writes.
type group struct {
	items []item
	text  []byte // the bodies
	size  int    // bytes of the bodies
	front int    // number of items put in front of those whose indexes next returned

	done, awaited bool // awaited: an appender waits for the result, or has waited for it

	err    error
	first  uint64    // seq of the record with index 0, when done without err
	result sync.Cond // signalled when done, or when a waiting appender should lead
}

// item is one record of a group; later means that no appender waits for it.
type item struct {
	body
	later bool
}

func newGroup(mu sync.Locker) *group { return &group{result: sync.Cond{L: mu}} }

// maxKept is the capacity up to which the buffers of a write are reused.
const maxKept = 1 << 20

// emptied returns an empty group with the buffers of g, whose write has ended, unless they
// have become large. It is g itself unless an appender waits for the result of g, which it may
// still have to read. The leader has read it, since it held mu from the end of the write on.
func (g *group) emptied() *group {
	next := g
	if g.awaited {
		next = new(group)
	}
	if cap(g.text) > maxKept {
		g.items, g.text = nil, nil
	}
	*next = group{items: g.items[:0], text: g.text[:0], result: sync.Cond{L: g.result.L}}
	return next
}

// add appends a record, with a copy of its body in the buffer of g.
func (g *group) add(b body, later bool) {
	at := len(g.text)
	g.text = append(g.text, b.text...)
	g.items = append(g.items, item{body{g.text[at:], b.from, b.to}, later})
	g.size += len(b.text)
}

// next returns the index of the next record. The seq of a record is group.first plus its
// index, once the group is written.
func (g *group) next() int { return len(g.items) - g.front }

// keepLater puts the Later records of a failed group in front of the records of next,
// as long as both together are at most limit bytes. lost is the number of records that
// did not fit.
func (g *group) keepLater(next *group, limit int) (lost int64) {
	n := len(next.items)
	for _, it := range g.items {
		if it.later && next.size+len(it.text) <= limit {
			next.add(it.body, true)
		} else if it.later {
			lost++
		}
	}
	next.front += len(next.items) - n
	next.items = append(append([]item(nil), next.items[n:]...), next.items[:n]...)
	return lost
}
