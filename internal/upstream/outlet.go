package upstream

import "sync"

// maxWaiting bounds the events that wait for a slow receiver, for one call as
// for a connection. Their bytes are bounded by Definition.MaxMessage besides.
const maxWaiting = 4096

// outlet hands the events that no call owns to a function, one after the other
// and never on the goroutine that reads from the server: the receiver may
// block, or use the connection, without stopping the calls. Its goroutine lives
// only while there is something to hand over, so an idle outlet costs nothing.
type outlet struct {
	mu      sync.Mutex
	on      func(Event)
	queue   []Event
	size    int // bytes of params in the queue
	max     int // bound of size
	held    bool
	running bool
	closed  bool
}

// push queues the event; false means that it was dropped because the receiver
// is too slow, or is not there.
func (o *outlet) push(ev Event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.on == nil || len(o.queue) >= maxWaiting || o.size+len(ev.Params) > o.max && o.size > 0 {
		return false
	}
	o.queue = append(o.queue, ev)
	o.size += len(ev.Params)
	o.start()
	return true
}

// start is called with the lock held.
func (o *outlet) start() {
	if o.held || o.running || len(o.queue) == 0 {
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
	if o.closed || len(o.queue) == 0 {
		o.running, o.queue, o.size = false, nil, 0
		return Event{}, false
	}
	ev := o.queue[0]
	o.queue[0] = Event{}
	o.queue = o.queue[1:]
	o.size -= len(ev.Params)
	return ev, true
}

// close drops what waits. A receiver that is being called is not interrupted.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue, o.size = true, nil, 0
}
