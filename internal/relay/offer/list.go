package offer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/upstream/pin"
)

// list is the state of one list of one connection.
type list struct {
	verdict atomic.Pointer[pin.Verdict] // nil: unknown, or no longer current
	changes atomic.Uint64               // how often the server said that it changed
	looked  atomic.Int64                // time of the verdict, in Unix nanoseconds

	once sync.Once
	turn chan struct{} // held while the server is asked
}

// forget makes the next use ask the server.
func (o *list) forget() {
	o.changes.Add(1)
	o.verdict.Store(nil)
}

// store keeps a verdict about a list that was requested after changes was read, unless the
// list has changed since.
func (o *list) store(v *pin.Verdict, changes uint64) {
	o.looked.Store(time.Now().UnixNano())
	o.verdict.Store(v)
	if o.changes.Load() != changes {
		o.verdict.CompareAndSwap(v, nil)
	}
}

func (o *list) current() *pin.Verdict {
	if v := o.verdict.Load(); v != nil && v.Current() {
		return v
	}
	return nil
}

func (o *list) take(ctx context.Context) (release func(), err error) {
	o.once.Do(func() { o.turn = make(chan struct{}, 1) })
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
