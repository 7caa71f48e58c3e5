package gate

// Limits. Invariant: each act that counts as under way stops to count exactly once, and
// the count of one principal never exceeds its limit. What an act used of the rate is not
// given back.

import (
	"sync"
	"sync/atomic"
	"time"
)

// The rules named by a refusal because of a limit of one principal. They are keys of the
// configuration.
const (
	RuleRate    = "limits.calls_per_second"
	RuleCalls   = "limits.calls_per_principal"
	RuleStreams = "limits.sessions_per_principal"
)

// Limits are the limits of each principal; 0 is no limit.
type Limits struct {
	CallsPerSecond int
	Calls          int // under way at once
	Streams        int // open at once
	// Own are the limits of calls, streams and administration for the principals of the
	// daemon's own user, which IsOwn recognises by their names. nil: the same limits
	// as for all others.
	Own   *Limits
	IsOwn func(name string) bool
}

// of returns the limits for acts of kind k by the principal name.
func (l *Limits) of(name string, k Kind) *Limits {
	if l.Own == nil || k == Question || k == Guidance || !l.IsOwn(name) {
		return l
	}
	return l.Own
}

// Kind determines the account and the limit of an act.
type Kind uint8

const (
	// Call is the kind of a request of a caller; it counts while it is under way.
	Call Kind = iota
	// Stream is the kind of a request that stays open until its caller closes it
	// (subscriptions/listen). Streams have their own limit, so that listening leaves
	// room for calls.
	Stream
	// Question is the kind of a request from a server to its caller. It has a rate for
	// each server, so that no server uses up the rate of its caller at other servers.
	Question
	// Administration is the kind of the operator's acts. They have an account of their
	// own, so that they succeed when agents of the same user are at their limits.
	Administration
	// Guidance is the kind of the acts by which a caller obtains instructions: delivery
	// sessions and deliveries. They have a rate of their own and take no room from
	// calls, because a client makes them beside its calls.
	Guidance
)

// Charge makes the acts of one request count as one, from the time that the first
// enters until the last has left.
type Charge struct {
	mu   sync.Mutex
	paid bool
	open int
}

// account counts the usage of one principal. It fills a cache line, so that accounts of
// different callers do not share one.
type account struct {
	due     atomic.Int64 // see withinRate
	calls   atomic.Int32
	streams atomic.Int32
	others  atomic.Int32 // without a limit
	limits  *Limits      // set before the account is shared
	_       [32]byte
}

// accountOf returns the account that an act is charged to. An account lives as long as
// the gate: principals are few, and each was authenticated.
func (g *Gate) accountOf(a *Act) *account {
	key := a.Who.Name()
	switch a.Kind { // no name contains a NUL, so these keys are not names
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

// place returns the counter of acts of kind k that are under way, its limit, and the rule
// of that. Acts without a limit are bounded elsewhere, or too short to bound.
func (c *account) place(k Kind) (count *atomic.Int32, most int, rule string) {
	switch k {
	case Call:
		return &c.calls, c.limits.Calls, RuleCalls
	case Stream:
		return &c.streams, c.limits.Streams, RuleStreams
	}
	return &c.others, 0, ""
}

// limit is the reason of a refusal. The zero value means that the act is admitted.
type limit struct {
	rule string
	code int
	wait time.Duration // estimated time until an act is admitted again
}

// capWait is the wait in refusals because of a limit on simultaneous acts. When one of
// them ends is not known.
const capWait = time.Second

// charge charges an act to c, and leave ends the charge. The acts of one Charge are
// charged as one.
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
	} else if a.With.open == 0 {
		count, _, _ := c.place(a.Kind)
		count.Add(1)
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
	count, _, _ := c.place(a.Kind)
	count.Add(-1)
}

// admit checks the number of simultaneous acts before the rate, so that an act refused
// for that number does not count for the rate.
func (g *Gate) admit(c *account, k Kind) limit {
	count, most, rule := c.place(k)
	if !occupy(count, most) {
		return limit{rule: rule, code: CodeUnavailable, wait: capWait}
	}
	wait := g.withinRate(c)
	if wait == 0 {
		return limit{}
	}
	count.Add(-1)
	return limit{rule: RuleRate, code: CodeRate, wait: wait}
}

// occupy takes one of n places; with n of 0 there is no bound. The count never exceeds n,
// not even for a moment, because a concurrent act could then be refused without need.
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

// withinRate is a generic cell rate limiter with a burst of one second's calls.
// It uses one atomic word for each account and no lock: the time at which the next
// call would be due at a steady rate. A call that would be due more than a second ahead
// is refused with the time to wait; 0 means that the call is admitted.
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
