package watermark

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Index holds the refs that are searched for. It is safe for concurrent use; a nil Index
// is empty.
type Index struct {
	max  int
	size atomic.Int64 // of known, so that an empty index needs no lock
	pool sync.Pool    // of *finder

	mu    sync.RWMutex
	known map[key]*entry
	ages  ages
}

type entry struct {
	key key
	to  Delivery
	at  time.Time
	pos int // in ages
}

// NewIndex makes an index of at most max refs, at least one.
func NewIndex(max int) *Index {
	if max < 1 {
		max = 1
	}
	x := &Index{max: max, known: make(map[key]*entry)}
	x.pool.New = func() any { return &finder{} }
	return x
}

// Add adds a ref. A known ref gets the later of the two times. When there are too many
// refs, the one with the earliest time is dropped. An invalid ref is ignored.
func (x *Index) Add(ref string, d Delivery, at time.Time) {
	k, ok := keyOf(ref)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.known[k]; e != nil {
		e.to = d
		if at.After(e.at) {
			e.at = at
			heap.Fix(&x.ages, e.pos)
		}
		return
	}
	e := &entry{key: k, to: d, at: at}
	x.known[k] = e
	heap.Push(&x.ages, e)
	for len(x.known) > x.max {
		x.dropOldest()
	}
	x.size.Store(int64(len(x.known)))
}

// Prune drops the refs that were last added before a time.
func (x *Index) Prune(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.ages) > 0 && x.ages[0].at.Before(before) {
		x.dropOldest()
	}
	x.size.Store(int64(len(x.known)))
}

func (x *Index) dropOldest() {
	delete(x.known, heap.Pop(&x.ages).(*entry).key)
}

// Find returns the delivery of a ref, given in the form that Ref returns.
func (x *Index) Find(ref string) (Delivery, bool) {
	k, ok := keyOf(ref)
	if !ok || x.Empty() {
		return Delivery{}, false
	}
	return x.find(k)
}

func (x *Index) find(k key) (Delivery, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.known[k]; e != nil {
		return e.to, true
	}
	return Delivery{}, false
}

// Empty reports whether no ref is known.
func (x *Index) Empty() bool { return x == nil || x.size.Load() == 0 }

// ages is a heap with the earliest entry first.
type ages []*entry

func (a ages) Len() int           { return len(a) }
func (a ages) Less(i, j int) bool { return a[i].at.Before(a[j].at) }

func (a ages) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].pos, a[j].pos = i, j
}

// Push implements heap.Interface.
func (a *ages) Push(e any) {
	e.(*entry).pos = len(*a)
	*a = append(*a, e.(*entry))
}

// Pop implements heap.Interface.
func (a *ages) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return e
}
