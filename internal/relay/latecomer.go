package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/upstream"
)

// latecomer waits for a server that was left out of merged lists, and tells the
// listening clients to list again when it answers. There is one for each link,
// and one goroutine for each list that it waits for.
type latecomer struct {
	b    *backend
	hub  *hub
	ctx  context.Context                          // ends with the link
	get  func(context.Context) (*liveConn, error) // the link's connection
	drop func(*liveConn)
	log  *slog.Logger

	mu sync.Mutex
	// lists has the list methods that the server failed to answer. Each channel has capacity 1,
	// and ends the pause of its goroutine.
	lists map[string]chan struct{}
	told  map[string]news // by method, of what clients were told last
}

// news is the digest of an answer, and how many clients there have been.
type news struct {
	sum    [32]byte
	joined uint64
}

// mostOwed bounds the lists that a latecomer waits for: clients choose the names of those that
// the protocol does not define.
const mostOwed = 16

// missed notes that a list went out without this server.
func (l *latecomer) missed(method string) {
	if l.hub.watchers.empty() {
		return // no client could be told
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists[method] != nil || len(l.lists) >= mostOwed {
		return
	}
	if l.lists == nil {
		l.lists = make(map[string]chan struct{})
	}
	wake := make(chan struct{}, 1)
	l.lists[method] = wake
	go l.run(method, wake)
}

// expected reports whether the server owes the answer to a list, so that the next one need
// not wait for it.
func (l *latecomer) expected(method string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[method] != nil
}

// patience returns how long the next list of a method waits for the server.
func (l *latecomer) patience(method string, hasty bool) time.Duration {
	if hasty || l.expected(method) {
		return listing.LateTime
	}
	return listing.ListTime
}

// run asks the server for a list until it has answered it. Being connected is not enough,
// because clients that list again need the answer. Each list is asked for by itself: some
// servers never answer a method that they do not know.
func (l *latecomer) run(method string, wake <-chan struct{}) {
	for pause := firstRetry; !l.over(method); pause = min(2*pause, lastRetry) {
		if sum, ok := l.asks(method); ok {
			l.settle(method, sum)
			return
		}
		select {
		case <-time.After(pause):
		case <-wake:
		case <-l.ctx.Done():
			return
		}
	}
}

// asks sends the list request, if policy lets a client see the server, and reports whether the
// server answered it, and the digest of its answer. Definitions that it lists for the first time
// are approved as in a list that a client asked for.
func (l *latecomer) asks(method string) (sum [32]byte, ok bool) {
	if !l.hub.watchers.seen() {
		return sum, false
	}
	ctx, cancel := context.WithTimeout(l.ctx, dialTime)
	defer cancel()
	c, err := l.get(ctx)
	if err != nil {
		return sum, errors.Is(err, failure.ErrGone)
	}
	defer l.drop(c)
	if k, ok := listing.PinKind(method); ok && l.b.Pin != nil {
		entries, err := c.offers.Judged(ctx, k)
		return sha256.Sum256(entries), err == nil
	}
	reply, err := c.conn.Call(ctx, &upstream.Request{Method: method, Params: era.OwnParams(c.meta)}, nil)
	return sha256.Sum256(reply.Result), err == nil
}

// settle tells the listening clients to list again. They are told once of the same answer,
// because a server that is slow with every list would otherwise make them list for ever. A client
// that has come since has to be told.
func (l *latecomer) settle(method string, sum [32]byte) {
	now := news{sum, l.hub.watchers.count()}
	l.mu.Lock()
	delete(l.lists, method)
	told := l.told[method]
	if l.told == nil {
		l.told = make(map[string]news)
	}
	l.told[method] = now
	l.mu.Unlock()
	l.b.answered(l.log, method)
	if kind, _ := listing.Of(method); kind.Changed != "" && told != now {
		l.hub.spread(upstream.Event{Method: kind.Changed})
	}
}

// settled notes that the server has answered a list of one client in time. If it owes that
// list to others, it is asked for it now, and they are told.
func (l *latecomer) settled(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wake := l.lists[method]
	if wake == nil {
		delete(l.told, method)
		return
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// over ends the wait for a list when no watcher is left.
func (l *latecomer) over(method string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hub.watchers.empty() { // under mu: a watcher that comes later finds no wait, and begins one
		return false
	}
	delete(l.lists, method)
	return true
}

// why says for the operator why a server has not answered a list.
func (b *backend) why(r front.Reply) string {
	switch e := r.Error; {
	case e == nil:
		return "no answer"
	case e.Code == failure.CodeTimeout && b.starting():
		return listing.WhyStarting
	case e.Code == failure.CodeTimeout:
		return "slow"
	case r.Limit != "":
		return e.Message + " (" + r.Limit + ")"
	default:
		return e.Message
	}
}

// leftOut notes that a list goes out without a server's own answer, for status and, once, for
// the log. A server that waits for a sign-in is not noted, because status shows that anyway.
func (b *backend) leftOut(log *slog.Logger, method string, r front.Reply) (why string) {
	why = b.why(r)
	if why == failure.SignIn {
		return why
	}
	if b.owed.Miss(method, why) {
		log.Warn("a list was answered without the part of a server", "server", b.Name, "list", method, "why", why)
	}
	return why
}

// answered notes that a server has answered a list.
func (b *backend) answered(log *slog.Logger, method string) {
	if b.owed.Pay(method) {
		log.Info("a server answered a list that it had failed to answer", "server", b.Name, "list", method)
	}
}
