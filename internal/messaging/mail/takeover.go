package mail

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// takeOver gives a peer to a new session of the same principal. One statement checks that
// the lease of the session before has ended, and sets the new session with the next
// epoch. Messages leased to the old session return to the queue, and its next call is
// answered Fenced.
func (j registering) takeOver(o Owner, id, space, name string, out *Registered) (Peer, error) {
	var before string
	if err := j.Row([]any{&before}, `SELECT session FROM peers WHERE peer_id = ?1`, id); err != nil {
		return Peer{}, fmt.Errorf("reading the owner of a name: %w", err)
	}
	if err := j.supersede(o.Principal, before); err != nil {
		return Peer{}, fmt.Errorf("superseding a session: %w", err)
	}
	var p Peer
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET session = ?3, node = ?4, grade = ?5, epoch = epoch + 1, lease_until = ?6, last_seen = ?7
		WHERE peer_id = ?1 AND principal = ?2 AND kind = 'agent' AND lease_until <= ?7 AND session = ?8
			AND namespace = ?9 AND name = ?10 RETURNING `+peerColumns,
		id, o.Principal, o.Session, o.Node, o.Grade, j.lease(), j.now, before, space, name)
	if errors.Is(err, store.ErrNoRow) {
		return p, j.taken(o.Principal, space, name)
	}
	if err != nil {
		return p, fmt.Errorf("taking over: %w", err)
	}
	done()
	if before == "" && p.Epoch == 1 { // the first session of a spawned agent
		out.Created = true
		return p, nil
	}
	return p, j.inherit(p, reasonTakeover, out)
}

// inherit returns the leased messages of a mailbox to the queue, for the next epoch of
// its peer.
func (j registering) inherit(p Peer, reason string, out *Registered) error {
	x, err := j.mailboxes.box(p.ID)
	if err != nil {
		return err
	}
	leased, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen+` AND state = 'leased'`, p.ID)
	if err != nil {
		return err
	}
	for _, r := range leased {
		if err := j.mailboxes.endLease(x, r, reason); err != nil {
			return err
		}
	}
	j.signal(TopicMailbox(p.ID)) // the session before waits for mail no longer
	j.change(Change{PeerID: p.ID, To: p.Name, Epoch: p.Epoch, Reason: reason})
	out.Takeover = &Takeover{PrevEpoch: p.Epoch - 1, Inherited: int(x.tally.pending()), Held: int(x.tally.of(Held))}
	return nil
}

func (j registering) supersede(principal, session string) error {
	if session == "" {
		return nil
	}
	_, err := j.Exec(`UPDATE peer_sessions SET superseded = 1, changed_at = ?3 WHERE principal = ?1 AND session = ?2`, principal, session, j.now)
	return err
}
