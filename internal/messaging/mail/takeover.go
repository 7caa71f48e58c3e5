package mail

import (
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// seen is a peer as it was read before a session takes it over.
type seen struct{ id, session, namespace, name string }

// resume gives the peer of an earlier session of o's principal to o. NotRegistered: that
// session has no peer; Fenced: another session has taken it over.
func (j registering) resume(o Owner, session string, out *Registered) (Peer, error) {
	was := seen{session: session}
	err := j.Row([]any{&was.id, &was.namespace, &was.name}, `SELECT peer_id, namespace, name FROM peers
		WHERE principal = ?1 AND session = ?2 AND `+isOwned, o.Principal, session)
	if errors.Is(err, store.ErrNoRow) {
		return Peer{}, j.directory.stranger(Owner{Principal: o.Principal, Session: session})
	}
	if err != nil {
		return Peer{}, fmt.Errorf("looking for the peer of a former session: %w", err)
	}
	return j.takeOver(o, was, out)
}

// takeOver gives a peer to a new session of the same principal. One statement checks that
// the lease of the session before has ended, and sets the new session with the next
// epoch. Messages leased to the old session return to the queue, and its next call is
// answered Fenced.
func (j registering) takeOver(o Owner, was seen, out *Registered) (Peer, error) {
	if err := j.supersede(o.Principal, was.session); err != nil {
		return Peer{}, fmt.Errorf("superseding a session: %w", err)
	}
	var p Peer
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET session = ?3, node = ?4, grade = ?5, epoch = epoch + 1, lease_until = ?6, last_seen = ?7
		WHERE peer_id = ?1 AND principal = ?2 AND kind = 'agent' AND lease_until <= ?7 AND session = ?8
			AND namespace = ?9 AND name = ?10 RETURNING `+peerColumns,
		was.id, o.Principal, o.Session, o.Node, o.Grade, j.lease(), j.now, was.session, was.namespace, was.name)
	if errors.Is(err, store.ErrNoRow) {
		return p, j.taken(o.Principal, was.namespace, was.name)
	}
	if err != nil {
		return p, fmt.Errorf("taking over: %w", err)
	}
	done()
	if was.session == "" && p.Epoch == 1 { // the first session of a spawned agent
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

func (j registering) lease() int64 { return j.now + j.b.o.Limits.Session.Milliseconds() }

// taken returns the error for a name that could not be taken: NameInUse if it is the
// principal's own, NameOwned otherwise. An alias or tombstone counts like its peer.
func (j registering) taken(principal, space, name string) error {
	var owner string
	var until int64
	err := j.Row([]any{&owner, &until}, `SELECT n.principal, COALESCE((SELECT CASE WHEN n.kind = 'peer' THEN p.lease_until ELSE n.expires_at END
		FROM peers p WHERE p.peer_id = n.peer_id), n.expires_at) FROM peer_names n WHERE n.namespace = ?1 AND n.name = ?2`, space, name)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return &Error{Code: NameInUse, Retry: time.Second} // it has just become free
	case err != nil:
		return err
	case owner != principal:
		return refuse(NameOwned)
	}
	return &Error{Code: NameInUse, Retry: max(0, time.Duration(until-j.now)*time.Millisecond)}
}
