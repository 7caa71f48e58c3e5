package upstream

import (
	"sync"

	"github.com/doorward/doorward/internal/base/protocol"
)

// maxWaiting bounds the events that wait for a slow receiver, for each call and each
// connection. Their size is bounded by Definition.MaxMessage.
const maxWaiting = 4096

// outlet passes the events that belong to no call to a function, one after the other and
// never on the goroutine that reads from the server: the receiver may block, or use the
// connection, without stopping the calls. Its goroutine exists only while events wait, so an
// idle outlet costs nothing.
type outlet struct {
	mu      sync.Mutex
	on      func(Event)
	queue   []Event
	size    int // sizes of the events in the queue
	max     int // bound of size
	held    bool
	running bool
	closed  bool
	missed  bool          // a change was dropped; Missed stands for it
	ended   chan struct{} // closed when the outlet has passed on its last event; nil: drain does not wait
}

// push queues the event; false: it was dropped, because the receiver is missing or too slow. The
// receiver learns that a change was dropped, by Missed behind the queue.
func (o *outlet) push(ev Event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.on == nil {
		return false
	}
	if len(o.queue) >= maxWaiting || o.size+ev.size() > o.max && o.size > 0 {
		o.missed = o.missed || protocol.IsChange(ev.Method)
		return false
	}
	o.queue = append(o.queue, ev)
	o.size += ev.size()
	o.start()
	return true
}

// miss tells the receiver that a change was dropped elsewhere.
func (o *outlet) miss() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.on != nil {
		o.missed = true
		o.start()
	}
}

// start runs the outlet if there is something to do. The caller holds mu.
func (o *outlet) start() {
	if o.held || o.running || len(o.queue) == 0 && !o.missed {
		return
	}
	o.running = true
	go o.run()
}

// release starts an outlet that was held until its connection was ready.
func (o *outlet) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	o.start()
}

func (o *outlet) run() {
	for {
		ev, ok := o.pop()
		if !ok {
			return
		}
		o.on(ev)
	}
}

func (o *outlet) pop() (Event, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 && o.missed && !o.closed {
		o.missed = false
		return Event{Missed: true}, true
	}
	if len(o.queue) == 0 {
		o.running, o.queue, o.size = false, nil, 0
		if o.ended != nil {
			close(o.ended)
		}
		return Event{}, false
	}
	ev := o.queue[0]
	o.queue[0] = Event{}
	o.queue = o.queue[1:]
	o.size -= ev.size()
	return ev, true
}

// close drops the queue. A call of the receiver in progress is not interrupted.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue, o.size = true, nil, 0
}

// drain makes the outlet refuse further events, and waits until those in the queue are passed
// on. It is called once.
func (o *outlet) drain() {
	o.mu.Lock()
	o.closed = true
	if o.running {
		o.ended = make(chan struct{})
	}
	ended := o.ended
	o.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
