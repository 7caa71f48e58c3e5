package mail_test

import (
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// An idle peer that is sent a message after the search for idle peers, and before its own
// release, keeps its name and the message. The send happens while another idle peer is
// released, which needs a database with several writers.
func TestAnIdlePeerWithNewMailIsKept(t *testing.T) {
	t.Parallel()
	b := postgresBed(t, mail.Options{})
	writer, idle := b.join("writer"), map[string]*agent{}
	for _, name := range []string{"one", "two", "three"} {
		a := b.join(name)
		idle[a.Peer.ID] = a
	}
	week := 8 * 24 * time.Hour.Milliseconds()
	b.exec(`UPDATE peers SET lease_until = 1, last_seen = last_seen - ?1 WHERE kind = 'agent' AND name <> 'writer'`, week)
	var once sync.Once
	var sent *mail.Sent
	var kept []*agent
	again, err := mail.Open(t.Context(), b.db, mail.Options{Node: "sweeper", Upkeep: func(u *mail.Upkeep) any {
		if idle[u.Peer] == nil {
			return said(u)
		}
		once.Do(func() {
			for id, a := range idle {
				if id != u.Peer {
					kept = append(kept, a)
				}
			}
			sent = writer.send(draft("are you there?", kept...))
		})
		return said(u)
	}})
	must(t, err)
	_, err = again.Sweep(t.Context())
	must(t, err)
	if sent == nil {
		t.Fatal("no idle peer was released")
	}
	for _, d := range writer.status(sent.MessageID) {
		same(t, "the message to "+d.To, d.State, mail.Queued)
	}
	same(t, "agents", b.count(`SELECT count(*) FROM peers WHERE kind = 'agent'`), 3)
	b.sound()
}
