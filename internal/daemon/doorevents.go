package daemon

import (
	"net/http"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// sumTime is how long equal refusals at the door are counted before they are
// written as one record (docs/security-model.md).
const sumTime = time.Minute

// doorEvents records refusals at the door: the first at once, its equals
// within a minute as one record with their count. Its keys are constants and
// listeners of ours, and of each at most callersKept who; so a flood cannot
// grow it.
type doorEvents struct {
	log *audit.Log

	mu     sync.Mutex
	open   map[doorEvent]*tally
	closed bool
}

// doorEvent is what equal refusals have in common. from distinguishes refused
// callers, as far as the kernel says; it is empty for the rest.
type doorEvent struct{ source, action, resource, reason, from string }

// callersKept bounds how many of those who were refused for the same are told
// apart at once.
const callersKept = 64

type tally struct {
	count int64
	facts []principal.Fact
	timer *time.Timer
}

func newDoorEvents(log *audit.Log) *doorEvents {
	return &doorEvents{log: log, open: make(map[doorEvent]*tally)}
}

// connection records a connection that was refused, with what the kernel says
// of its other end.
func (e *doorEvents) connection(where string, r listen.Refusal) {
	var facts []principal.Fact
	switch {
	case r.Peer != nil:
		facts = authn.Facts(r.Peer)
	case r.Owner == listen.OwnerSame || r.Owner == listen.OwnerOther:
		facts = authn.OwnerFacts(r.UID, r.Holder)
	}
	from := ""
	if len(facts) > 0 {
		from = facts[0].Value // the uid
	}
	e.add("listen", "connect", where, r.Reason, from, facts...)
}

// request records a refused request, with where it came from.
func (e *doorEvents) request(r *http.Request, source, action, reason string) {
	o := listen.From(r.Context())
	if o == nil {
		e.add(source, action, "", reason, "")
		return
	}
	client := o.Client(r.Header)
	facts := authn.RemoteFacts(callerOf(r), client)
	from := ""
	if len(facts) > 0 {
		from = facts[0].Value + " for " + client.String() // the uid or the address
	}
	e.add(source, action, o.Listener.URL(), reason, from, facts...)
}

// add records a refusal. facts are what is known of who was refused, and from
// tells them apart.
func (e *doorEvents) add(source, action, resource, reason, from string, facts ...principal.Fact) {
	k := doorEvent{source, action, resource, reason, from}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if from != "" && e.open[k] == nil && e.among(k) >= callersKept {
		k.from, facts = "", nil
	}
	if t := e.open[k]; t != nil {
		t.count++
		return
	}
	t := &tally{facts: facts}
	t.timer = time.AfterFunc(sumTime, func() { e.flush(k) })
	e.open[k] = t
	e.write(k, t)
}

// among counts those who were refused for the same.
func (e *doorEvents) among(k doorEvent) (n int) {
	for other := range e.open {
		if k.from = other.from; k == other {
			n++
		}
	}
	return n
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
		e.write(k, t)
	}
}

// write records one refusal, or those that were counted after it.
func (e *doorEvents) write(k doorEvent, t *tally) {
	r := &audit.Record{Kind: audit.Event, Source: k.source, Action: k.action, Resource: k.resource,
		Decision: audit.Deny, Reason: k.reason, Count: t.count}
	if len(t.facts) > 0 {
		r.Who = principal.New("", t.facts...)
	}
	e.log.Later(r)
}

// close writes what has been counted.
func (e *doorEvents) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for k, t := range e.open {
		t.timer.Stop()
		if t.count > 0 {
			e.write(k, t)
		}
	}
}
