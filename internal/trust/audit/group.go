package audit

// Groups of records. Invariant: a record that an appender waits for is written or
// refused, never both, and every lost record is counted.

import "sync"

// group holds the records of one write, in the order in which they were appended.
// While one group is written, the next one collects records, so that concurrent
// appenders share a write. Log.mu guards all of it, except that items belong to the
// leader while it writes.
type group struct {
	items []item
	size  int // bytes of their bodies
	front int // number of items put in front of those whose indexes next returned

	done   bool
	err    error
	first  uint64    // seq of the record with index 0, when done without err
	result sync.Cond // signalled when done, or when a waiting appender should lead
}

// item is one record of a group; later means that no appender waits for it.
type item struct {
	body
	later bool
}

func newGroup(mu *sync.Mutex) *group { return &group{result: sync.Cond{L: mu}} }

// add appends a record.
func (g *group) add(b body, later bool) {
	g.items = append(g.items, item{b, later})
	g.size += len(b.text)
}

// next returns the index of the next record. The seq of a record is group.first plus its
// index, once the group is written.
func (g *group) next() int { return len(g.items) - g.front }

// keepLater puts the Later records of a failed group in front of the records of next,
// as long as both together are at most limit bytes. lost is the number of records that
// did not fit.
func (g *group) keepLater(next *group, limit int) (lost int64) {
	var kept []item
	for _, it := range g.items {
		switch {
		case !it.later:
		case next.size+len(it.text) > limit:
			lost++
		default:
			kept = append(kept, it)
			next.size += len(it.text)
		}
	}
	next.items = append(kept, next.items...)
	next.front += len(kept)
	return lost
}
