package front

import (
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
