package daemon

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/audit"
)

// sumTime is how long equal refusals at the door are counted before they are
// written as one record (contract, "Audit").
const sumTime = time.Minute

// doorEvents records refusals at the door: the first at once, its equals
// within a minute as one record with their count. Its keys are constants and
// listeners of ours, so a flood cannot grow it.
type doorEvents struct {
	log *audit.Log

	mu     sync.Mutex
	open   map[doorEvent]*tally
	closed bool
}

type doorEvent struct{ source, action, resource, reason string }

type tally struct {
	count int64
	timer *time.Timer
}

func newDoorEvents(log *audit.Log) *doorEvents {
	return &doorEvents{log: log, open: make(map[doorEvent]*tally)}
}

func (e *doorEvents) add(source, action, resource, reason string) {
	k := doorEvent{source, action, resource, reason}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if t := e.open[k]; t != nil {
		t.count++
		return
	}
	e.open[k] = &tally{timer: time.AfterFunc(sumTime, func() { e.flush(k) })}
	e.write(k, 0)
}

func (e *doorEvents) flush(k doorEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.open[k]
	if t == nil || e.closed {
		return
	}
	delete(e.open, k)
	if t.count > 0 {
		e.write(k, t.count)
	}
}

func (e *doorEvents) write(k doorEvent, count int64) {
	e.log.Later(&audit.Record{Kind: audit.Event, Source: k.source, Action: k.action, Resource: k.resource,
		Decision: audit.Deny, Reason: k.reason, Count: count})
}

// close writes what has been counted.
func (e *doorEvents) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for k, t := range e.open {
		t.timer.Stop()
		if t.count > 0 {
			e.write(k, t.count)
		}
	}
}
