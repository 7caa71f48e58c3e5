package mail

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/doorward/doorward/internal/base/store"
)

// Inbox returns the messages for the operator of this node, and
// acknowledges them when ack is set. It leases nothing, because the operator may
// look repeatedly.
func (d Desk) Inbox(ctx context.Context, ack bool, note Note[Batch]) (*Batch, error) {
	return perform(ctx, d.b, note, func(j *job) (*Batch, error) {
		out := &Batch{}
		p, g, err := j.directory.look(`peers.peer_id = ?1`, d.b.operator.id)
		if err != nil {
			return nil, err
		}
		f := Fetch{Max: inboxMax, MaxBytes: 8 << 20}
		if err := j.receiving.show(p, f, out); err != nil {
			return nil, err
		}
		if out.Counts, err = j.mailboxes.counts(p, g, Receipt{}); err != nil {
			return nil, err
		}
		if ack {
			if err := j.receiving.readAll(p, out); err != nil {
				return nil, err
			}
			out.Counts.Pending -= out.Acked
		}
		out.Peer = p
		return out, nil
	})
}

// readAll acknowledges the messages that the operator was shown.
func (j receiving) readAll(p Peer, out *Batch) error {
	x, err := j.mailboxes.box(p.ID)
	if err != nil {
		return err
	}
	for _, m := range out.Messages {
		found, err := j.mailboxes.rows(`message_id = ?1 AND peer_id = ?2 AND `+isOpen, m.ID, p.ID)
		if err != nil {
			return err
		}
		for _, r := range found {
			_, err := j.Exec(`UPDATE deliveries SET given_at = ?3, attempts = 1 WHERE message_id = ?1 AND peer_id = ?2 AND given_at = 0`, m.ID, p.ID, j.now)
			if err == nil {
				err = j.mailboxes.end(x, r, Acked, "", "")
			}
			if err != nil {
				return err
			}
			out.Acked++
		}
	}
	_, err = j.Exec(`UPDATE outboxes SET covered = ?2 WHERE peer_id = ?1 AND covered < ?2`, p.ID, out.Counts.Receipt.Notice)
	return err
}

// settled runs act on the deliveries of a message that are in one of the states in. It
// locks their mailboxes before it reads the states; the set of recipients of a message
// does not change. A delivery for which act returns a zero Settled is left as it is.
// UnknownMessage: act settled no delivery.
func (d Desk) settled(ctx context.Context, messageID string, in []string, note Note[Settled], act func(*job, *box, row) (Settled, error)) ([]Settled, error) {
	var out []Settled
	err := d.b.write(ctx, func(j *job) error {
		out = nil
		all, err := j.mailboxes.rows(`message_id = ?1 ORDER BY peer_id`, messageID)
		if err != nil {
			return err
		}
		var peers []string
		for _, r := range all {
			peers = append(peers, r.peer)
		}
		if err := j.mailboxes.boxesOf(peers...); err != nil {
			return err
		}
		if all, err = j.mailboxes.rows(`message_id = ?1 AND again_as = '' ORDER BY peer_id`, messageID); err != nil {
			return err
		}
		for _, r := range all {
			if x := j.boxes[r.peer]; x != nil && slices.Contains(in, r.state) {
				s, err := act(j, x, r)
				if err != nil {
					return err
				}
				if s.MessageID != "" {
					out = append(out, s)
				}
			}
		}
		if len(out) == 0 {
			return refuse(UnknownMessage)
		}
		for i := range out {
			if err := noted(j, note, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Approve queues a held message in the mailboxes of shown, which are peer ids; nil means
// all. shown keeps the approval from covering a mailbox that was not displayed. passkey
// is the key that signed the approval; an empty one is refused if the book requires a
// passkey.
func (d Desk) Approve(ctx context.Context, messageID, passkey string, shown []string, note Note[Settled]) ([]Settled, error) {
	if d.b.o.Passkey && passkey == "" {
		return nil, refuse(PasskeyRequired)
	}
	return d.settled(ctx, messageID, []string{Held}, note, func(j *job, x *box, r row) (Settled, error) {
		if shown != nil && !slices.Contains(shown, r.peer) {
			return Settled{}, nil
		}
		seq, err := j.holding.letIn(x, r, reasonApproved)
		return Settled{MessageID: r.message, PeerID: r.peer, State: Queued, Seq: seq}, err
	})
}

// Reject refuses a held message. why is a note for its sender; empty: no note.
func (d Desk) Reject(ctx context.Context, messageID, why string, note Note[Settled]) ([]Settled, error) {
	return d.settled(ctx, messageID, []string{Held}, note, func(j *job, x *box, r row) (Settled, error) {
		return Settled{MessageID: r.message, PeerID: r.peer, State: Refused}, j.mailboxes.end(x, r, Refused, reasonRefused, why)
	})
}

// Purge ends an open message as purged.
func (d Desk) Purge(ctx context.Context, messageID string, note Note[Settled]) ([]Settled, error) {
	return d.settled(ctx, messageID, []string{Held, Queued, Leased}, note, func(j *job, x *box, r row) (Settled, error) {
		return Settled{MessageID: r.message, PeerID: r.peer, State: Purged, Seq: r.seq}, j.mailboxes.end(x, r, Purged, reasonPurged, "")
	})
}

// letIn queues a held message and gives it its sequence number. The sender gets a notice
// that the hold has ended.
func (j holding) letIn(x *box, r row, reason string) (int64, error) {
	var seq int64
	err := j.Row([]any{&seq}, `UPDATE mailboxes SET last_seq = last_seq + 1 WHERE peer_id = ?1 RETURNING last_seq`, x.peer)
	if err != nil {
		return 0, fmt.Errorf("numbering a released message: %w", err)
	}
	n, err := j.Exec(`UPDATE deliveries SET state = 'queued', seq = ?3, due = expires_at, changed_at = ?4, reason = ?5
		WHERE message_id = ?1 AND peer_id = ?2 AND state = 'held'`, r.message, r.peer, seq, j.now, reason)
	if err == nil && n != 1 {
		err = errMoved
	}
	if err != nil {
		return 0, fmt.Errorf("releasing a held message: %w", err)
	}
	x.shift(Held, Queued, r.bytes)
	j.notify(notice{r.sender, r.message, r.peer, Queued})
	j.mailboxes.moved(r, Queued, 0, reason)
	return seq, nil
}

// Requeue sends a dead or expired message again, once, to the recipients that it
// did not reach, under a new id, because final states are final. The sender stays
// the same, and the recipients' limits hold.
func (d Desk) Requeue(ctx context.Context, messageID string, note Note[Settled]) ([]Settled, error) {
	return d.settled(ctx, messageID, []string{Dead, Expired}, note, func(j *job, x *box, r row) (Settled, error) {
		m, authority, err := j.spawning.resent(r.message, r.peer)
		if err != nil {
			return Settled{}, err
		}
		if m.body == "" || !x.active || r.reason == reasonInherited {
			return Settled{}, nil // text or recipient is gone, or it was inherited
		}
		first := j.requeued == "" // one new message for all its recipients
		if first {
			j.requeued = j.b.ids.next(j.now)
		}
		id := j.requeued
		if m.thread == m.id {
			m.thread = id
		}
		m.id, m.sentAt = id, j.now
		s, err := j.holding.again(m, r, x, authority)
		if err != nil {
			return Settled{}, err
		}
		if first {
			if err := m.store(j); err != nil {
				return Settled{}, err
			}
		}
		placed, err := j.placing.deliver(m, s)
		if err != nil {
			return Settled{}, err
		}
		_, err = j.Exec(`UPDATE deliveries SET again_as = ?3 WHERE message_id = ?1 AND peer_id = ?2`, r.message, r.peer, id)
		return Settled{MessageID: r.message, PeerID: r.peer, State: placed.State, Seq: placed.Seq, NewID: id}, err
	})
}

// again takes a seat for a message that the operator sends again.
func (j holding) again(m outgoing, r row, x *box, authority string) (seat, error) {
	to := Recipient{To: r.address, PeerID: r.peer, Principal: x.principal, Authority: authority, Hold: j.b.o.Passkey && r.seq == 0, Reason: reasonHold}
	from := m.from
	m.from, m.again = j.b.operator, true // the original sender's limits do not apply
	s, err := j.placing.takeSeat(m, to)
	if errors.Is(err, store.ErrNoRow) {
		if err = j.placing.whyNot(m, to); err == nil {
			err = &Error{Code: MailboxFull, Recipients: []string{to.To}}
		}
	}
	m.from, m.again = from, false
	return s, err
}

// Pause sets or ends the pause of a peer: while it is paused, new messages for it are
// held. At the end of a pause, the messages that were held because of it are queued,
// unless letting in takes a passkey. The peer in the note has the number of messages that
// are still held.
func (d Desk) Pause(ctx context.Context, peerID string, on bool, note Note[Peer]) error {
	return d.b.write(ctx, func(j *job) error {
		p, err := j.releasing.agent(peerID)
		if err != nil {
			return err
		}
		x, err := j.mailboxes.box(p.ID)
		if err != nil {
			return err
		}
		if _, err := j.Exec(`UPDATE mailboxes SET paused = ?2 WHERE peer_id = ?1`, p.ID, on); err != nil {
			return err
		}
		if !on && !j.b.o.Passkey {
			held, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen+` AND state = 'held' AND reason = 'paused' ORDER BY message_id`, p.ID)
			if err != nil {
				return err
			}
			for _, r := range held {
				if _, err := j.holding.letIn(x, r, reasonResumed); err != nil {
					return err
				}
			}
		}
		p.Paused, p.Inbound, p.Pending, p.Held = on, x.inbound, int(x.tally.pending()), int(x.tally.of(Held))
		j.signal(TopicPeers)
		return noted(j, note, &p)
	})
}
