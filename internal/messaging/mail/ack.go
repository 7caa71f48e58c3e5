package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// Ack acknowledges or rejects the messages ids that o's peer was given, in this session
// or an earlier one, and renews the session's lease. The sender of each message gets a
// notice with text; an acknowledgement without text makes no notice. An id of a message
// that the peer was not given is unknown, also when another peer was given it. Unknown
// ids and messages in a final state are counted and are no error.
//
// The error is an *Error: NotRegistered, Fenced, AuditUnavailable or StoreUnavailable.
// Nothing was changed then, unless it wraps store.ErrUncertain. The same call may be
// repeated.
func (b *Book) Ack(ctx context.Context, o Owner, ids []string, rejected bool, text string, note Note[Confirmed]) (*Confirmed, error) {
	return perform(ctx, b, note, func(j *job) (*Confirmed, error) {
		p, err := j.directory.fence(o)
		if err != nil {
			return nil, err
		}
		return j.mailboxes.confirm(p, ids, rejected, text)
	})
}

// confirm ends the deliveries to p of the messages ids, and counts those that are final
// already.
func (j mailboxes) confirm(p Peer, ids []string, rejected bool, text string) (*Confirmed, error) {
	out := &Confirmed{Peer: p}
	x, err := j.box(p.ID)
	if err != nil {
		return nil, err
	}
	state := Acked
	if rejected {
		state = Rejected
	}
	seen := make(map[string]bool)
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		found, err := j.rows(`message_id = ?1 AND peer_id = ?2`, id, p.ID)
		if err != nil {
			return nil, fmt.Errorf("reading what is confirmed: %w", err)
		}
		switch {
		case len(found) == 0 || found[0].givenAt == 0:
			out.Unknown = append(out.Unknown, id)
		case isFinalState(found[0].state):
			out.Already++
		default:
			if err := j.end(x, found[0], state, "", text); err != nil {
				return nil, err
			}
			out.Acked++
			out.IDs = append(out.IDs, id)
		}
	}
	return out, nil
}

// Status returns the deliveries of a message that o's peer has sent; UnknownMessage for
// any other message.
func (b *Book) Status(ctx context.Context, o Owner, id string) ([]Delivery, error) {
	var out []Delivery
	err := b.read(ctx, func(j *job) error {
		out = nil
		p, err := j.directory.me(o)
		if err != nil {
			return err
		}
		var sender string
		err = j.Row([]any{&sender}, `SELECT sender_id FROM messages WHERE message_id = ?1 AND sender_id = ?2`, id, p.ID)
		if errors.Is(err, store.ErrNoRow) {
			return refuse(UnknownMessage)
		}
		if err != nil {
			return err
		}
		return j.Each(func(scan func(...any) error) error {
			var d Delivery
			err := scan(&d.To, &d.State, &d.Attempts, &d.ChangedAt, &d.GivenAt, &d.AckedAt, &d.Reason, &d.Note)
			out = append(out, d)
			return err
		}, `SELECT address, state, attempts, changed_at, given_at, CASE WHEN state = 'acked' THEN acked_at ELSE 0 END, reason, note
			FROM deliveries WHERE message_id = ?1 ORDER BY address, peer_id`, id)
	})
	return out, err
}
