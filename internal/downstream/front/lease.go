package front

import (
	"context"
	"strings"

	"github.com/doorward/doorward/internal/trust/principal"
)

// lease is a running request or stream that is ended when the credential of its principal
// becomes invalid.
type lease struct {
	who *principal.Principal
	cut func()
}

func (o *Options) watches(who *principal.Principal) bool { return o.Holds != nil && canLose(who) }

func nothing() {}

// lend registers a lease for who; back removes it.
func (d *Door) lend(who *principal.Principal, cut func()) (back func()) {
	if !d.o.watches(who) {
		return nothing
	}
	l := &lease{who, cut}
	d.leases.Store(l, nil)
	return func() { d.leases.Delete(l) }
}

// during registers a lease for a request: when the proof of its principal becomes invalid,
// the request is cancelled and answered like any further request of that caller (401).
func (d *Door) during(x *Exchange, cancel context.CancelFunc) (back func()) {
	if !d.o.watches(x.Who) {
		return nothing
	}
	return d.lend(x.Who, func() {
		x.stream.disown(refusals{d}.challenge(pathOf(x.Server), "invalid_token", refusals{d}.basic()))
		cancel()
	})
}

// disown sets the challenge of the 401 that is sent if no answer has begun. It does not wait
// for a message that the client is slow to take.
func (s *stream) disown(challenge string) { s.disowned.Store(&challenge) }

// sweepLost ends running calls and streams whose principal's proof is no longer valid, and
// sessions whose principal or program is gone. Without it, a program that ends without closing
// its session would count against the limits until the session is idle.
func (d *Door) sweepLost() {
	d.leases.Range(func(k, _ any) bool {
		if l := k.(*lease); !d.o.Holds(l.who) {
			l.cut()
		}
		return true
	})
	d.Each(func(s *Session) bool {
		if !s.holds() || !d.owned(s) && !renews(s.Who) {
			d.sessions.remove(s)
		}
		return true
	})
}

// renews reports whether the sessions of who wait for a renewed access token of who. Most
// clients renew a token when it is refused, after it has expired, and do not open a new session
// then. A session of the transport that is one stream ends with its stream.
func renews(who *principal.Principal) bool {
	return strings.HasPrefix(who.Name(), principal.KindOAuth+":")
}

// owned reports whether a session still has a valid owner: its latest credential, or the one
// that opened it.
func (d *Door) owned(s *Session) bool {
	owner := s.Owner()
	if d.o.Holds == nil || d.o.Holds(owner) {
		return true
	}
	if owner == s.Who || !d.o.Holds(s.Who) {
		return false
	}
	s.owner.CompareAndSwap(owner, s.Who)
	return true
}
