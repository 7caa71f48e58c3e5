package mail

import (
	"context"
	"fmt"
)

const (
	noticesMax  = 100
	pointersMax = 20
)

// Look reads the counts of o's mailbox and pointers to at most 20 of the
// newest unleased messages. It changes nothing. The receipt in its counts
// covers the notices in them and no message.
func (b *Book) Look(ctx context.Context, o Owner) (Peer, Counts, []Pointer, error) {
	var p Peer
	var c Counts
	var pointers []Pointer
	err := b.read(ctx, func(j *job) error {
		var g glimpse
		var err error
		if p, g, err = j.directory.glance(o); err != nil {
			return err
		}
		if c, err = j.mailboxes.counts(p, g, Receipt{}); err != nil || g.tally.of(Queued) == 0 {
			pointers = nil
			return err
		}
		pointers, err = j.mailboxes.pointers(p.ID)
		return err
	})
	return p, c, pointers, err
}

func (j mailboxes) pointers(peer string) ([]Pointer, error) {
	var out []Pointer
	err := j.Each(func(scan func(...any) error) error {
		var p Pointer
		err := scan(&p.MessageID, &p.From, &p.Lineage, &p.Kind, &p.Seq, &p.SentAt)
		out = append(out, p)
		return err
	}, `SELECT d.message_id, d.from_name, d.lineage, m.kind, d.seq, m.sent_at
		FROM deliveries d JOIN messages m ON m.message_id = d.message_id
		WHERE d.peer_id = ?1 AND `+isOpen+` AND d.seq > 0 AND d.state = 'queued' ORDER BY d.seq DESC LIMIT ?2`, peer, pointersMax)
	return out, err
}

// counts reads the counts of a mailbox for its owner, with the receipt of the answer that
// they are part of. given states the messages that the answer carries, and their thread
// when one is named. An empty mailbox without new notices needs no further statement.
func (j mailboxes) counts(p Peer, g glimpse, given Receipt) (Counts, error) {
	c := Counts{Pending: int(g.tally.pending()), Held: int(g.tally.of(Held)), Missed: g.tally.missed()}
	c.Receipt = Receipt{PeerID: p.ID, Epoch: p.Epoch, Seq: given.Seq, Notice: g.covered, Thread: given.Thread}
	if c.Pending > 0 {
		err := j.Row([]any{&c.Newest}, `SELECT COALESCE(max(seq), 0) FROM deliveries WHERE peer_id = ?1 AND `+isOpen+` AND seq > 0`, p.ID)
		if err != nil {
			return c, fmt.Errorf("reading the newest message: %w", err)
		}
	}
	if g.lastNotice <= g.covered {
		return c, nil
	}
	err := j.Each(func(scan func(...any) error) error {
		var n Notice
		err := scan(&n.MessageID, &n.To, &n.State, &n.At, &n.Reason, &n.Note, &c.Receipt.Notice)
		c.Notices = append(c.Notices, n)
		return err
	}, `SELECT message_id, address, notice_state, notice_at, reason, note, notice_seq FROM deliveries
		WHERE sender_id = ?1 AND notice_seq > 0 AND notice_seq > ?2 ORDER BY notice_seq LIMIT ?3`, p.ID, g.covered, noticesMax)
	if err != nil {
		return c, fmt.Errorf("reading notices: %w", err)
	}
	return c, nil
}
