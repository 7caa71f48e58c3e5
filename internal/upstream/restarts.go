package upstream

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/upstream/process"
)

// restarts spaces the starts of one server's children, as the circuit does for a server over the network. A child that
// ends because of a client's handshake delays starts with the same handshake only, so one client cannot keep a server
// from others.
type restarts struct {
	mu    sync.Mutex
	all   process.Backoff // children that could not be started, and those that had worked
	by    map[uint64]*process.Backoff
	order []uint64 // keys of by, the oldest first
}

// ours is the key of handshakes that contain nothing of a client.
const ours = 0

// maxHellos bounds the handshakes with a backoff of their own. A new one replaces the oldest.
const maxHellos = 64

var helloSeed = maphash.MakeSeed()

// helloKey returns the key of a handshake: a hash of its params.
func helloKey(initParams []byte) uint64 {
	if initParams == nil {
		return ours
	}
	return maphash.Bytes(helloSeed, initParams) | 1
}

func (r *restarts) wait(key uint64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.all.Wait(now)
	if b := r.by[key]; b != nil {
		wait = max(wait, b.Wait(now))
	}
	return wait
}

// ended notes that a child ended by itself, and returns the pause before the next start.
func (r *restarts) ended(key uint64, started, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key == ours {
		return r.all.Ended(started, now)
	}
	return r.of(key).Ended(started, now)
}

// of returns the backoff of one handshake. The caller holds mu.
func (r *restarts) of(key uint64) *process.Backoff {
	if b := r.by[key]; b != nil {
		return b
	}
	if r.by == nil {
		r.by = make(map[uint64]*process.Backoff)
	}
	if len(r.order) == maxHellos {
		delete(r.by, r.order[0])
		r.order = r.order[1:]
	}
	b := new(process.Backoff)
	r.by[key], r.order = b, append(r.order, key)
	return b
}

// longest returns the longest pause before the next start over all handshakes.
func (r *restarts) longest(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.all.Wait(now)
	for _, b := range r.by {
		wait = max(wait, b.Wait(now))
	}
	return wait
}
