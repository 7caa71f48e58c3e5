package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// Unregister releases the name of o's peer and leaves a tombstone; its waiting
// messages expire. Released is false when there was none.
func (b *Book) Unregister(ctx context.Context, o Owner, note Note[Released]) (*Released, error) {
	return perform(ctx, b, note, func(j *job) (*Released, error) {
		out := &Released{}
		// A session's row comes before its peer's, as in Register.
		_, err := j.Exec(`UPDATE peer_sessions SET changed_at = ?3 WHERE principal = ?1 AND session = ?2`, o.Principal, o.Session, j.now)
		if err != nil {
			return nil, fmt.Errorf("locking the session: %w", err)
		}
		p, err := j.directory.fence(o)
		var e *Error
		switch {
		case errors.As(err, &e) && e.Code == NotRegistered:
		case err != nil:
			return nil, err
		default:
			if out.Pending, err = j.releasing.release(p, reasonReleased); err != nil {
				return nil, err
			}
			out.Peer, out.Released = p, true
		}
		return out, nil
	})
}

// release takes a peer, whose row is locked, out of service: no session owns it, its name
// becomes a tombstone, its mailbox accepts nothing, and its open messages expire, of
// which their senders get a notice. It returns the number of these messages.
func (j releasing) release(p Peer, reason string) (int, error) {
	if err := j.bury(p); err != nil {
		return 0, fmt.Errorf("releasing a name: %w", err)
	}
	x, err := j.mailboxes.box(p.ID)
	if err == nil {
		err = j.closeBox(p.ID)
	}
	if err != nil {
		return 0, err
	}
	waiting, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen, p.ID)
	if err != nil {
		return 0, err
	}
	for _, r := range waiting {
		if err := j.mailboxes.end(x, r, Expired, reason, ""); err != nil {
			return 0, err
		}
	}
	return len(waiting), nil
}

// tombstonesMax bounds the tombstones of a principal in one namespace.
const tombstonesMax = 256

// bury marks a peer as gone and turns its name into a tombstone. When there are too many
// tombstones, the oldest are deleted and their names are free.
func (j releasing) bury(p Peer) error {
	_, err := j.Exec(`UPDATE peers SET kind = 'gone', session = '', lease_until = 0, last_seen = ?2 WHERE peer_id = ?1`, p.ID, j.now)
	if err == nil {
		_, err = j.Exec(`UPDATE peer_names SET kind = 'tombstone', expires_at = ?2 WHERE peer_id = ?1 AND kind = 'peer'`,
			p.ID, j.now+j.b.o.Limits.Tombstone.Milliseconds())
	}
	if err == nil {
		_, err = j.Exec(`DELETE FROM peer_names WHERE kind = 'tombstone' AND (namespace, name) IN
			(SELECT namespace, name FROM peer_names WHERE namespace = ?1 AND principal = ?2 AND kind = 'tombstone'
			ORDER BY expires_at DESC, peer_id DESC LIMIT ?3 OFFSET ?4)`, p.Namespace, p.Principal, sweepBatch, tombstonesMax)
	}
	if err == nil {
		_, err = j.Exec(`UPDATE peer_sessions SET peer_id = '', changed_at = ?4 WHERE principal = ?1 AND session = ?2 AND peer_id = ?3`,
			p.Principal, p.Session, p.ID, j.now)
	}
	if err == nil { // a gone peer never returns, so its keys have no further use
		_, err = j.Exec(`DELETE FROM idempotency_keys WHERE peer_id = ?1`, p.ID)
	}
	if err == nil {
		err = j.registering.leaveSpace(p.Namespace)
	}
	j.signal(TopicPeers)
	j.signal(TopicMailbox(p.ID)) // its session waits for mail no longer
	return err
}

// closeBox makes a locked mailbox accept nothing more.
func (j releasing) closeBox(peer string) error {
	_, err := j.Exec(`UPDATE mailboxes SET active = 0 WHERE peer_id = ?1`, peer)
	return err
}

// agent locks the row of an agent for an act that needs no session of it.
func (j releasing) agent(peerID string) (Peer, error) {
	var p Peer
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET kind = kind WHERE peer_id = ?1 AND kind = 'agent' RETURNING `+peerColumns, peerID)
	if errors.Is(err, store.ErrNoRow) {
		return p, refuse(UnknownRecipient)
	}
	if err == nil {
		done()
	}
	return p, err
}

// Retire releases a peer's name as Unregister does.
func (d Desk) Retire(ctx context.Context, peerID string, note Note[Released]) (*Released, error) {
	return perform(ctx, d.b, note, func(j *job) (*Released, error) {
		p, err := j.releasing.agent(peerID)
		if err != nil {
			return nil, err
		}
		n, err := j.releasing.release(p, reasonReleased)
		if err != nil {
			return nil, err
		}
		return &Released{Peer: p, Released: true, Pending: n}, nil
	})
}

// Transfer gives a name to another principal, with its mail, and increments the epoch.
// Its session is superseded, and the next session of the new owner takes it over. The
// name of a spawned agent belongs to its spawn and cannot be transferred.
func (d Desk) Transfer(ctx context.Context, peerID, principal string, note Note[Peer]) (*Peer, error) {
	if principal == "" {
		return nil, refuse(InvalidArgument)
	}
	return perform(ctx, d.b, note, func(j *job) (*Peer, error) {
		before, err := j.releasing.agent(peerID)
		if err != nil {
			return nil, err
		}
		if before.Spawn != "" {
			return nil, refuse(InvalidArgument)
		}
		p, err := j.releasing.transfer(before, principal)
		if err != nil {
			return nil, err
		}
		return &p, nil
	})
}

func (j releasing) transfer(before Peer, principal string) (Peer, error) {
	var p Peer
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET principal = ?2, session = '', lease_until = 0, epoch = epoch + 1,
		read_since = CASE WHEN principal = ?2 THEN read_since ELSE ?3 END
		WHERE peer_id = ?1 RETURNING `+peerColumns, before.ID, principal, j.now)
	if err != nil {
		return p, fmt.Errorf("transferring a name: %w", err)
	}
	done()
	if _, err = j.Exec(`UPDATE peer_names SET principal = ?2 WHERE peer_id = ?1`, p.ID, principal); err == nil {
		_, err = j.Exec(`UPDATE mailboxes SET principal = ?2 WHERE peer_id = ?1`, p.ID, principal)
	}
	if err == nil {
		err = j.registering.supersede(before.Principal, before.Session)
	}
	var out Registered
	if err == nil {
		err = j.registering.inherit(p, reasonTransfer, &out)
	}
	if out.Takeover != nil {
		p.Pending, p.Held = out.Takeover.Inherited, out.Takeover.Held
	}
	j.signal(TopicPeers)
	j.signal(TopicMailbox(p.ID))
	return p, err
}
