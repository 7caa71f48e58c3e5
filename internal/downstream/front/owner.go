package front

import (
	"context"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/trust/principal"
)

// retain keeps the witness that reports whether the session's program still runs.
func (s *Session) retain() {
	s.owner.Store(s.Who)
	if w := s.Who.Witness(); w != nil {
		w.Retain()
	}
}

func (s *Session) letGo() {
	if w := s.Who.Witness(); w != nil {
		w.Release()
	}
}

// holds reports whether the program that the session was issued to still runs,
// as far as that can be told.
func (s *Session) holds() bool {
	w := s.Who.Witness()
	return w == nil || w.Holds()
}

// Confirmed reports that the session was issued to the very program that the
// facts of Who describe, and that it is still the same.
func (s *Session) Confirmed() bool {
	if s == nil {
		return false
	}
	w := s.Who.Witness()
	return w != nil && w.Holds()
}

// confirms reports the same of who, which a request came from in the session
// that was found for it. Facts that were read on another connection may be
// those of what the process was then, so both witnesses have to hold.
func (s *Session) confirms(who *principal.Principal) bool {
	issued, now := s.Who.Witness(), who.Witness()
	return issued != nil && (issued == now || now != nil && now.Holds())
}

// Owner is the session's principal as its last request proved it: a session
// goes on with the token that took the place of the one it was opened with,
// and with that one's rights.
func (s *Session) Owner() *principal.Principal { return s.owner.Load() }

func (s *Session) usedBy(who *principal.Principal) {
	if canLose(who) && s.owner.Load() != who {
		s.owner.Store(who)
	}
}

// canLose reports whether what proves a principal can end before its
// connection does. Of local callers the connection is the proof.
func canLose(who *principal.Principal) bool {
	name := who.Name()
	return !strings.HasPrefix(name, principal.KindUID+":") && !strings.HasPrefix(name, principal.KindLoopback+":")
}

func (d *Door) watched(who *principal.Principal) bool { return d.o.Holds != nil && canLose(who) }

func nothing() {}

// lease is something under way that ends when its principal is proved no more.
type lease struct {
	who *principal.Principal
	cut func()
}

// lend enters what is under way for who; back takes it out again.
func (d *Door) lend(who *principal.Principal, cut func()) (back func()) {
	if !d.watched(who) {
		return nothing
	}
	l := &lease{who, cut}
	d.leases.Store(l, nil)
	return func() { d.leases.Delete(l) }
}

// during lends a request: when the proof of its principal no longer holds it
// ends, and its caller gets the answer that any further request would get.
func (d *Door) during(x *Exchange, cancel context.CancelFunc) (back func()) {
	if !d.watched(x.Who) {
		return nothing
	}
	return d.lend(x.Who, func() {
		x.stream.disown(refusals{d}.challenge(pathOf(x.Server), "invalid_token", refusals{d}.basic()))
		cancel()
	})
}

func pathOf(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/mcp/" + server
}

// disown says that the answer, if none has begun, is 401 with this challenge.
func (s *stream) disown(challenge string) {
	s.mu.Lock()
	s.disowned = challenge
	s.mu.Unlock()
}

// withdraw answers a request that ended because of its caller, not its server.
func (s *stream) withdraw() {
	if s.disowned == "" {
		s.w.WriteHeader(http.StatusAccepted)
		return
	}
	s.w.Header().Set("WWW-Authenticate", s.disowned)
	plain(s.w, http.StatusUnauthorized)
}

// sweepLost ends what has lost its owner: calls of a principal whose proof no
// longer holds, and sessions whose principal or program is gone. A program that
// ends without closing its session would otherwise keep a place until the session
// is idle.
func (d *Door) sweepLost() {
	d.leases.Range(func(k, _ any) bool {
		if l := k.(*lease); !d.o.Holds(l.who) {
			l.cut()
		}
		return true
	})
	d.Each(func(s *Session) bool {
		if !d.owned(s) || !s.holds() {
			d.sessions.remove(s)
		}
		return true
	})
}

// owned reports whether a session still has an owner: by the credential that was
// presented last, or by the one that opened it.
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
