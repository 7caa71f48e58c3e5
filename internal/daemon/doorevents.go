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

// sumTime is how long equal refusals at the front are counted before they are written as one
// record (docs/security-model.md).
const sumTime = time.Minute

// doorEvents records refusals before authentication: the first at once, equal ones within a
// minute as one record with their count. The keys are constants and listeners, and for each
// at most callersKept sources, so a flood cannot make it grow.
type doorEvents struct {
	log *audit.Log

	mu     sync.Mutex
	open   map[doorEvent]*tally
	closed bool
}

// doorEvent is the key of equal refusals. from distinguishes refused callers by the kernel's
// facts; empty: unknown.
type doorEvent struct{ source, action, resource, reason, from string }

// callersKept bounds the number of sources that are distinguished for one kind of refusal.
const callersKept = 64

type tally struct {
	count int64
	facts []principal.Fact
	timer *time.Timer
}

func newDoorEvents(log *audit.Log) *doorEvents {
	return &doorEvents{log: log, open: make(map[doorEvent]*tally)}
}

// connection records a refused connection, with the kernel's facts about its other end.
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

// request records a refused request, with its origin.
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

// add records a refusal. facts describe the refused caller, and from distinguishes callers.
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

// among returns the number of open events that differ from k only in from.
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

// write records one refusal, or the number of equal ones that followed it.
func (e *doorEvents) write(k doorEvent, t *tally) {
	r := &audit.Record{Kind: audit.Event, Source: k.source, Action: k.action, Resource: k.resource,
		Decision: audit.Deny, Reason: k.reason, Count: t.count}
	if len(t.facts) > 0 {
		r.Who = principal.New("", t.facts...)
	}
	e.log.Later(r)
}

// close writes the counted refusals.
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
