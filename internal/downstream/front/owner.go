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

// holds reports whether the program that the session was issued to still runs. It is true if
// that cannot be determined.
func (s *Session) holds() bool {
	w := s.Who.Witness()
	return w == nil || w.Holds()
}

// SameProgram reports that the session was issued to the program that the facts of Who
// describe, and that this program still runs.
func (s *Session) SameProgram() bool {
	if s == nil {
		return false
	}
	w := s.Who.Witness()
	return w != nil && w.Holds()
}

// sameProgram reports the same for the principal of a request in this session. Facts that were
// read on another connection may describe an earlier program of the process, so both
// witnesses must hold.
func (s *Session) sameProgram(who *principal.Principal) bool {
	issued, now := s.Who.Witness(), who.Witness()
	return issued != nil && (issued == now || now != nil && now.Holds())
}

// Owner returns the session's principal as its last request proved it: after a token is
// replaced, the session continues with the new token and its rights.
func (s *Session) Owner() *principal.Principal { return s.owner.Load() }

func (s *Session) usedBy(who *principal.Principal) {
	if canLose(who) && s.owner.Load() != who {
		s.owner.Store(who)
	}
}

// canLose reports whether the proof of a principal can become invalid before its connection
// ends. For local callers the connection is the proof.
func canLose(who *principal.Principal) bool {
	name := who.Name()
	return !strings.HasPrefix(name, principal.KindUID+":") && !strings.HasPrefix(name, principal.KindLoopback+":")
}
