package gate

// Limits. Invariant: what is charged is given back exactly once, and the count of one
// principal never exceeds its limit.

import (
	"sync"
	"sync/atomic"
	"time"
)

// The rules that a refusal by a limit of one principal names: keys of the
// configuration.
const (
	RuleRate    = "limits.calls_per_second"
	RuleCalls   = "limits.calls_per_principal"
	RuleStreams = "limits.sessions_per_principal"
)

// Limits bound what each principal may do; 0 is no limit.
type Limits struct {
	CallsPerSecond int
	Calls          int // under way at once
	Streams        int // open at once
	// Own are the limits of calls and streams for the principals of the daemon's own
	// user, whom IsOwn tells by their names. nil: those of everybody.
	Own   *Limits
	IsOwn func(name string) bool
}

// of are the limits that acts of a kind by a principal are held to.
func (l *Limits) of(name string, k Kind) *Limits {
	if l.Own == nil || k == Question || k == Guidance || !l.IsOwn(name) {
		return l
	}
	return l.Own
}

// Kind says what an act is charged to.
type Kind uint8

const (
	// Call is what a caller asks for; it counts while it is under way.
	Call Kind = iota
	// Stream stays open until its caller leaves (subscriptions/listen). It is
	// counted apart, so that listening takes no room from calls.
	Stream
	// Question is what a server asks of its caller. It has a rate for each
	// server: none may use up what its caller can do elsewhere.
	Question
	// Administration is the operator's acts, which must succeed when agents of the
	// same user are at their limits.
	Administration
	// Guidance is the acts by which a caller obtains instructions: delivery
	// sessions and deliveries. They have a rate of their own and take no room from
	// calls, because a client makes them beside its calls.
	Guidance
)

// Charge makes the acts of one request count as one, from when the first
// enters until the last has left.
type Charge struct {
	mu   sync.Mutex
	paid bool
	open int
}

// account is what one principal uses. It fills a cache line, because callers
// are to share nothing.
type account struct {
	due     atomic.Int64 // see withinRate
	calls   atomic.Int32
	streams atomic.Int32
	limits  *Limits // set before anybody else sees it
	_       [40]byte
}

// accountOf finds what an act is charged to. An account stays for the life of
// the gate: principals are few, and each was authenticated.
func (g *Gate) accountOf(a *Act) *account {
	key := a.Who.Name()
	switch a.Kind { // no name holds a NUL
	case Question:
		key += "\x00" + a.Server
	case Administration:
		key += "\x00"
	case Guidance:
		key += "\x00\x00"
	}
	v, ok := g.accounts.Load(key)
	if !ok {
		v, _ = g.accounts.LoadOrStore(key, &account{limits: g.limits.of(a.Who.Name(), a.Kind)})
	}
	return v.(*account)
}

// place is where acts of a kind are counted while they are under way; nil:
// they are bounded elsewhere, or too short.
func (c *account) place(k Kind) *atomic.Int32 {
	switch k {
	case Call:
		return &c.calls
	case Stream:
		return &c.streams
	}
	return nil
}

// limit is what an act has met. The zero value: nothing.
type limit struct {
	rule string
	code int
	wait time.Duration // until the next is admitted, as far as can be told
}

// capWait is the wait that a caller is told when a cap is reached.
const capWait = time.Second

// charge counts an act in; leave counts it out.
func (g *Gate) charge(c *account, a *Act) limit {
	if a.With == nil {
		return g.admit(c, a.Kind)
	}
	a.With.mu.Lock()
	defer a.With.mu.Unlock()
	if !a.With.paid {
		if l := g.admit(c, a.Kind); l.rule != "" {
			return l
		}
		a.With.paid = true
	} else if place := c.place(a.Kind); place != nil && a.With.open == 0 {
		place.Add(1)
	}
	a.With.open++
	return limit{}
}

func (c *account) leave(a *Act) {
	if a.With != nil {
		a.With.mu.Lock()
		defer a.With.mu.Unlock()
		if a.With.open--; a.With.open > 0 {
			return
		}
	}
	if place := c.place(a.Kind); place != nil {
		place.Add(-1)
	}
}

// admit looks at the cap before the rate, so that an act which finds no room
// uses nothing up.
func (g *Gate) admit(c *account, k Kind) limit {
	place, most, rule := c.place(k), c.limits.Calls, RuleCalls
	if k == Stream {
		most, rule = c.limits.Streams, RuleStreams
	}
	if place != nil && !occupy(place, most) {
		return limit{rule: rule, code: CodeUnavailable, wait: capWait}
	}
	wait := g.withinRate(c)
	if wait == 0 {
		return limit{}
	}
	if place != nil {
		place.Add(-1)
	}
	return limit{rule: RuleRate, code: CodeRate, wait: wait}
}

// occupy takes one of at most n places. It never counts beyond n, not even for
// a moment, in which another would be refused for nothing.
func occupy(place *atomic.Int32, n int) bool {
	for {
		taken := place.Load()
		if n > 0 && int(taken) >= n {
			return false
		}
		if place.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
}

// withinRate is a generic cell rate limiter with a burst of one second's
// worth: one atomic word for each principal, so two sessions share no lock.
// The word is when the last admitted call would have been due at a steady
// pace; a call that would be due more than a second ahead has to wait, and
// learns how long.
func (g *Gate) withinRate(c *account) (wait time.Duration) {
	if c.limits.CallsPerSecond <= 0 {
		return 0
	}
	step := int64(time.Second) / int64(c.limits.CallsPerSecond)
	now := int64(g.clock())
	for {
		due := c.due.Load()
		next := max(due, now) + step
		if early := next - now - int64(time.Second); early > 0 {
			return time.Duration(early)
		}
		if c.due.CompareAndSwap(due, next) {
			return 0
		}
	}
}
