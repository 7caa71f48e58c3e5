package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// peerColumns are the columns that Peer.places reads.
const peerColumns = `peers.peer_id, peers.kind, peers.namespace, peers.name, peers.principal, peers.session, peers.node, peers.grade,
	peers.epoch, peers.lease_until, peers.last_seen, peers.display, peers.summary, peers.labels, peers.spawn_id, peers.ancestors`

// places returns the destinations for a row of peerColumns; done completes the peer after
// the scan.
func (p *Peer) places(now int64) (dest []any, done func()) {
	var labels, ancestors string
	dest = []any{&p.ID, &p.kind, &p.Namespace, &p.Name, &p.Principal, &p.Session, &p.Node, &p.Grade,
		&p.Epoch, &p.LeaseUntil, &p.LastSeen, &p.Display, &p.Summary, &labels, &p.Spawn, &ancestors}
	return dest, func() {
		p.Labels, p.Ancestors = labelMap(labels), splitIDs(ancestors)
		p.Live = p.kind == kindAgent && p.LeaseUntil > now
		// The operator is live as long as its node is.
		if p.kind == kindOperator {
			p.Live = true
		}
	}
}

// fence locks the row of o's peer, and checks that the session still owns it. It is the
// first statement of every change that an agent makes. So a change that races a takeover
// either commits first, in the epoch before, or fails with Fenced. It renews the lease,
// unless the session was ended.
func (j directory) fence(o Owner) (Peer, error) {
	var p Peer
	if o.Session == "" {
		return p, refuse(NotRegistered)
	}
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET grade = ?3, last_seen = ?4,
		lease_until = CASE WHEN lease_until = 0 THEN 0 WHEN lease_until > ?5 THEN lease_until ELSE ?5 END
		WHERE principal = ?1 AND session = ?2 AND `+isOwned+` RETURNING `+peerColumns,
		o.Principal, o.Session, o.Grade, j.now, j.now+j.b.o.Limits.Session.Milliseconds())
	if errors.Is(err, store.ErrNoRow) {
		return p, j.stranger(o)
	}
	if err != nil {
		return p, fmt.Errorf("fence: %w", err)
	}
	done()
	return p, nil
}

// sender returns o's peer with its row locked; known is what Recall returned of it, or nil.
func (j directory) sender(o Owner, known *Peer) (Peer, error) {
	if known == nil {
		return j.fence(o)
	}
	return j.still(o, *known)
}

// still is fence for a peer that Recall returned: ErrChanged if o has another one, or none,
// or if a fact about it has changed that a decision or an envelope depends on.
func (j directory) still(o Owner, p Peer) (Peer, error) {
	n, err := j.Exec(`UPDATE peers SET grade = ?3, last_seen = ?4,
		lease_until = CASE WHEN lease_until = 0 THEN 0 WHEN lease_until > ?5 THEN lease_until ELSE ?5 END
		WHERE principal = ?1 AND session = ?2 AND `+isOwned+`
			AND peer_id = ?6 AND epoch = ?7 AND namespace = ?8 AND name = ?9 AND node = ?10 AND spawn_id = ?11`,
		o.Principal, o.Session, o.Grade, j.now, j.now+j.b.o.Limits.Session.Milliseconds(),
		p.ID, p.Epoch, p.Namespace, p.Name, p.Node, p.Spawn)
	if err != nil {
		return p, fmt.Errorf("fence: %w", err)
	}
	if n != 1 {
		return p, ErrChanged
	}
	p.Grade = o.Grade
	return p, nil
}

// stranger returns the error for an owner without a peer: Fenced if its session was
// superseded, NotRegistered otherwise.
func (j directory) stranger(o Owner) error {
	var superseded int64
	err := j.Row([]any{&superseded}, `SELECT superseded FROM peer_sessions WHERE principal = ?1 AND session = ?2`, o.Principal, o.Session)
	switch {
	case errors.Is(err, store.ErrNoRow), err == nil && superseded == 0:
		return refuse(NotRegistered)
	case err != nil:
		return err
	}
	return refuse(Fenced)
}

// Me returns o's peer; NotRegistered, or Fenced when another session has taken the peer
// over.
func (b *Book) Me(ctx context.Context, o Owner) (Peer, error) {
	var p Peer
	err := b.read(ctx, func(j *job) (err error) {
		p, err = j.directory.me(o)
		return err
	})
	return p, err
}

// me reads o's peer without a lock. No change may depend on it; changes use fence.
func (j directory) me(o Owner) (Peer, error) {
	p, _, err := j.glance(o)
	return p, err
}

// glance reads o's peer with the counters of its mailbox and outbox.
func (j directory) glance(o Owner) (Peer, glimpse, error) {
	p, g, err := j.look(`peers.principal = ?1 AND peers.session = ?2 AND peers.kind = 'agent' AND peers.session <> ''`, o.Principal, o.Session)
	if errors.Is(err, store.ErrNoRow) {
		return p, g, j.stranger(o)
	}
	return p, g, err
}

// glimpse holds the counters of a mailbox and an outbox.
type glimpse struct {
	tally               tally
	lastSeq             int64
	lastNotice, covered int64
}

// look reads the one peer that matches where, with the counters of its mailbox and
// outbox.
func (j directory) look(where string, args ...any) (p Peer, g glimpse, err error) {
	dest, done := p.places(j.now)
	dest = append(dest, &p.Inbound, &p.Paused, &g.lastSeq, &g.lastNotice, &g.covered)
	dest = append(dest, g.tally.places()...)
	err = j.Row(dest, `SELECT `+peerColumns+`, m.inbound, m.paused, m.last_seq, o.last_notice, o.covered, `+tallyColumns+`
		FROM peers JOIN mailboxes m ON m.peer_id = peers.peer_id JOIN outboxes o ON o.peer_id = peers.peer_id WHERE `+where, args...)
	if err == nil {
		done()
		p.Pending, p.Held = int(g.tally.pending()), int(g.tally.of(Held))
	}
	return p, g, err
}
