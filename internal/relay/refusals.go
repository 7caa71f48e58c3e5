package relay

import (
	"sync"

	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// maxRefusals bounds the refusals that wait for a server to read them.
const maxRefusals = 1024

// refusals are the refusals of questions that wait to be sent to one server. One goroutine
// sends them, and it exists only while some wait: a server that asks without reading costs
// neither a goroutine nor a POST for each question.
type refusals struct {
	mu      sync.Mutex
	waiting []refusal
	running bool // the goroutine that sends
	full    bool // once too many have waited, nothing is sent any more
	warned  bool // the log has a line about too many questions
}

type refusal struct {
	id    wire.ID
	reply upstream.Reply
}

// add queues a refusal. starts: the caller starts the goroutine that sends. overflows: too many
// wait, for the first time.
func (r *refusals) add(one refusal) (starts, overflows bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return false, false
	}
	if len(r.waiting) >= maxRefusals {
		r.full, r.waiting = true, nil
		return false, true
	}
	r.waiting = append(r.waiting, one)
	starts, r.running = !r.running, true
	return starts, false
}

// next removes the oldest refusal. False: the goroutine that sends ends.
func (r *refusals) next() (one refusal, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.running, r.waiting = false, nil
		return refusal{}, false
	}
	one, r.waiting = r.waiting[0], r.waiting[1:]
	return one, true
}

// warns reports whether the log lacks a line about too many questions.
func (r *refusals) warns() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.warned
	r.warned = true
	return first
}
