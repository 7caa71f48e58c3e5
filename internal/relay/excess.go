package relay

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/audit"
)

const (
	// refusedBurst is how many refused questions of one kind are recorded one by one, however
	// fast they come.
	refusedBurst = 100
	// refusedEvery is the time after which one more of them is recorded so.
	refusedEvery = time.Second
)

// excess bounds the records about the refused questions of one server to the clients of one link. A server decides how
// often it asks, and the record would grow as fast as it reads the refusals. Beyond the bound a question is refused
// without a decision, and such refusals are summed up.
type excess struct {
	sums *content.Tally
	note func(*audit.Record)

	mu  sync.Mutex
	due map[string]time.Time // by kind: when the bound would be unused again
}

// refused notes a question that was recorded and refused.
func (e *excess) refused(method string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.due == nil {
		e.due = make(map[string]time.Time)
	}
	kind, now := kindOf(method), time.Now()
	if e.due[kind].Before(now) {
		e.due[kind] = now
	}
	e.due[kind] = e.due[kind].Add(refusedEvery)
}

// refuses reports whether a question has to be refused without a decision, and counts such a question.
func (e *excess) refuses(server, method string) bool {
	kind := kindOf(method)
	e.mu.Lock()
	over := time.Until(e.due[kind]) > refusedBurst*refusedEvery
	e.mu.Unlock()
	if over {
		e.sums.Add(kind, content.Finding{Result: "refused", N: 1}, func(kind string, f content.Finding) {
			e.note(&audit.Record{Kind: audit.Event, Source: "relay", Action: kind, Resource: server, Result: f.Result, Count: f.N,
				Reason: "the server asks too often: refused without a decision"})
		})
	}
	return over
}

// kindOf returns the method of a question that the protocol defines, and one word for all others, because the server
// chooses the names of these.
func kindOf(method string) string {
	if question.CapabilityOf(method) == "" {
		return question.Other
	}
	return method
}
