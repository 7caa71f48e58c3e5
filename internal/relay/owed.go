package relay

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

// listTime is how long a list waits for a server. What a slower server offers is
// answered from what was approved of it, and the client is told to list again
// when the server answers.
const listTime = 2500 * time.Millisecond

// lateTime is how long for one that owes the answer since an earlier list.
const lateTime = 500 * time.Millisecond

// MetaNotYet is the member of a merged list's _meta that tells the daemon's own user
// which servers' own answers are not in it, and why.
const MetaNotYet = "doorward/not-yet"

// whyStarting is why a server that is being started answers no list.
const whyStarting = "starting"

// owed is the lists that went out without a server's own answer.
type owed struct {
	mu    sync.Mutex
	lists map[string]owedList // by method
}

type owedList struct {
	since time.Time
	why   string
}

// miss notes that a list went out without the server's own answer; first reports
// that the one before had it.
func (o *owed) miss(method, why string) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, known := o.lists[method]
	if o.lists == nil {
		o.lists = make(map[string]owedList)
	}
	if !known {
		old.since = time.Now()
	}
	o.lists[method] = owedList{old.since, why}
	return !known
}

// pay notes that the server has answered a list; owed reports that it was missed
// before.
func (o *owed) pay(method string) (owed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, owed = o.lists[method]
	delete(o.lists, method)
	return owed
}

// started forgets what a server owed only because it was starting: it has started.
func (o *owed) started() {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.lists, func(_ string, l owedList) bool { return l.why == whyStarting })
}

// text says which lists lack the server, since when and why; "" for none.
func (o *owed) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for method, l := range o.lists {
		all = append(all, method+" (since "+l.since.Format("15:04")+": "+l.why+")")
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "not yet in " + strings.Join(all, ", ")
}

// why is what keeps a server from answering a list, for the operator.
func (b *backend) why(e *wire.Error) string {
	switch {
	case e == nil:
		return "no answer"
	case e.Code == codeTimeout && b.starting():
		return whyStarting
	case e.Code == codeTimeout:
		return "slow"
	}
	return e.Message
}

// leftOut notes that a list goes out without a server's own answer, for status
// and, once, for the log. A server that waits for a sign-in is in status anyway.
func (r *Relay) leftOut(b *backend, method string, e *wire.Error) (why string) {
	why = b.why(e)
	if why == textSignIn {
		return why
	}
	if b.owed.miss(method, why) {
		r.log.Warn("a list goes out without a server's own answer", "server", b.Name, "list", method, "why", why)
	}
	return why
}

// answered notes that a server has answered a list.
func (r *Relay) answered(b *backend, method string) {
	if b.owed.pay(method) {
		r.log.Info("a server answers a list that it owed", "server", b.Name, "list", method)
	}
}

// approved is what was approved of a server's list, as far as the caller may use
// it, as a JSON array; nil where nothing was.
func (r *Relay) approved(x *front.Exchange, b *backend, method string) []byte {
	k, ok := pinKind(method)
	if !ok || b.Pin == nil || !b.Pin.Knows(k) {
		return nil
	}
	kind, _ := listingOf(method)
	entries := b.Pin.Approved(k)
	if kept, changed := r.keep(x, b, kind, entries, b.Kind != "stdio" && b.spoken.Load()&eraBit(front.Modern) != 0); changed {
		entries = kept
	}
	if kind.member == "tools" && x.Era == front.Legacy {
		entries = legacyTools(entries)
	}
	return entries
}

// listOf serves a list on the route of one server. A server that does not answer
// in time is stood in for by what was approved of it; where nothing was, there is
// nothing to show yet, and the client waits as for any other request.
func (r *Relay) listOf(ctx context.Context, x *front.Exchange, t target) front.Reply {
	k, ok := pinKind(x.Method)
	if !ok || t.b.Pin == nil || wire.Get(x.Params, "cursor") != nil || !t.b.Pin.Knows(k) {
		return r.call(ctx, x, t)
	}
	l := r.linkFor(x, t.b)
	limited, cancel := context.WithTimeout(ctx, l.late.patience(x.Method))
	defer cancel()
	reply := r.call(limited, x, t)
	if ctx.Err() != nil || reply.Error != nil && !isLate(reply.Error) || reply.Error == nil && !reply.None {
		if reply.Error == nil {
			l.late.settled(x.Method)
			r.answered(t.b, x.Method)
		}
		return reply
	}
	l.late.missed(x.Method)
	r.leftOut(t.b, x.Method, reply.Error)
	kind, _ := listingOf(x.Method)
	result := rawjson.Set(emptyResult, rawjson.Edit{Key: kind.member, Value: r.approved(x, t.b, x.Method)})
	if x.Era == front.Modern {
		result = modernResult(x.Method, result)
	}
	return front.Reply{Result: result}
}

// isLate reports the error of a server that did not answer in time.
func isLate(e *wire.Error) bool { return e.Raw == nil && e.Code == codeTimeout }
