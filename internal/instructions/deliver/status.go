package deliver

import (
	"context"
	"time"
)

// Status is the state of delivery for one reader.
type Status struct {
	State      string   `json:"state"` // full, degraded or refused
	Reason     string   `json:"reason,omitempty"`
	Scope      []string `json:"scope"`
	Expires    string   `json:"expires,omitempty"` // RFC 3339
	SessionID  string   `json:"session_id,omitempty"`
	Revision   string   `json:"revision,omitempty"`
	Store      string   `json:"store"` // ok, unreachable or unused
	FailClosed bool     `json:"fail_closed"`
}

// Status returns the state of delivery for a reader; nil is a caller without a token.
func (s *readers) Status(r *Reader) Status {
	s.storage.settle(context.Background())
	_, state := s.o.Library.Set()
	out := Status{State: "full", Reason: s.Degraded(r), Scope: []string{}, Store: "ok", FailClosed: s.o.FailClosed}
	switch {
	case state.Unused:
		out.Store = "unused"
	case !state.OK:
		out.Store = "unreachable"
	}
	if out.Reason != "" {
		out.State = "degraded"
	}
	if out.Reason != "" && s.o.FailClosed && !state.Unused {
		out.State = "refused"
	}
	if r == nil {
		return out
	}
	out.Scope = append(out.Scope, s.scope(r)...)
	out.Revision = s.revision(r)
	if r.Session != nil {
		out.SessionID = r.Session.ID
		out.Expires = r.Session.Expires.UTC().Format(time.RFC3339)
	}
	return out
}
