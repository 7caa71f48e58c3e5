package agent

import (
	"context"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// Measures are the figures of messaging for the metrics.
type Measures struct {
	Accepted int64             // messages times recipients, since the store was made
	States   map[string]int64  // of these, by state
	Peers    map[string]int    // by presence
	Waits    int               // waiting calls
	Sends    map[string]uint64 // by outcome
}

// Measure reads the figures. An error means that the store is unavailable.
func (s *Server) Measure(ctx context.Context) (Measures, error) {
	total, err := s.o.Book.Desk().Totals(ctx)
	if err != nil {
		return Measures{}, err
	}
	m := Measures{Accepted: total.Accepted, States: total.States, Peers: make(map[string]int), Waits: s.sessions.waiting(), Sends: s.sends.All()}
	err = s.trail.eachPeer(ctx, func(p mail.Peer) { m.Peers[s.standingOf(p.ID, p.Live).presence]++ })
	return m, err
}

// eachPeer calls fn for every peer except the operators.
func (s *trail) eachPeer(ctx context.Context, fn func(mail.Peer)) error {
	for after := ""; ; {
		page, err := s.o.Book.Peers(ctx, mail.Peer{}, "", after, peersPage)
		if err != nil {
			return err
		}
		for _, p := range page {
			after = p.ID
			if p.Name != mail.Operator {
				fn(p)
			}
		}
		if len(page) < peersPage {
			return nil
		}
	}
}

// waiting returns the number of waiting calls.
func (t *sessions) waiting() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := 0
	for _, s := range t.byKey {
		n += s.calls
	}
	return n
}
