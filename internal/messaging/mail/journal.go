package mail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// tailDelay is the age from which tail shows a change on PostgreSQL. There a transaction
// can commit after one with a higher number, and a reader past that number would miss it.
// A transaction that takes longer than the delay is missed by tail and found by trace.
const tailDelay = 2 * time.Second

// Changes returns at most limit changes after the id after, oldest first, of one peer or
// (empty) of all, and the id to continue from. A negative after returns no changes but
// the last id.
func (d Desk) Changes(ctx context.Context, peerID string, after int64, limit int) ([]Change, int64, error) {
	var out []Change
	next := after
	err := d.b.read(ctx, func(j *job) (err error) {
		before := j.now
		if d.b.db.Engine() == store.Postgres {
			before -= tailDelay.Milliseconds()
		}
		if after < 0 {
			return j.Row([]any{&next}, `SELECT COALESCE(max(id), 0) FROM mail_changes WHERE at <= ?1`, before)
		}
		if next = after; limit < 1 {
			return nil
		}
		out, err = j.history.log(`id > ?1 AND at <= ?2 AND (?3 = '' OR peer_id = ?3) ORDER BY id LIMIT ?4`, after, before, peerID, limit)
		if len(out) > 0 {
			next = out[len(out)-1].ID
		}
		return err
	})
	return out, next, err
}

func (j history) log(where string, args ...any) ([]Change, error) {
	var out []Change
	err := j.Each(func(scan func(...any) error) error {
		var c Change
		err := scan(&c.ID, &c.At, &c.MessageID, &c.PeerID, &c.To, &c.From, &c.Before, &c.After, &c.Epoch, &c.Reason)
		out = append(out, c)
		return err
	}, `SELECT id, at, message_id, peer_id, to_name, from_name, state_before, state_after, epoch, reason FROM mail_changes WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading changes: %w", err)
	}
	return out, nil
}

// Trace returns the deliveries and the state changes of a message. UnknownMessage: there
// are none.
func (d Desk) Trace(ctx context.Context, messageID string) ([]Envelope, []Change, error) {
	var envelopes []Envelope
	var changes []Change
	err := d.b.read(ctx, func(j *job) (err error) {
		if envelopes, err = j.history.envelopes(false, `d.message_id = ?1 ORDER BY d.peer_id`, messageID); err != nil {
			return err
		}
		if changes, err = j.history.log(`message_id = ?1 ORDER BY id`, messageID); err != nil {
			return err
		}
		if messageID == "" || len(envelopes)+len(changes) == 0 {
			return refuse(UnknownMessage)
		}
		return nil
	})
	return envelopes, changes, err
}

// envelopes reads deliveries for the operator; bodies: with their texts.
func (j history) envelopes(bodies bool, where string, args ...any) ([]Envelope, error) {
	var out []Envelope
	err := j.Each(func(scan func(...any) error) error {
		var e Envelope
		dest, done := e.places()
		err := errors.Join(scan(append(dest, &e.To, &e.PeerID, &e.State, &e.Note, &e.Reason, &e.ChangedAt, &e.Principal)...), done())
		if !bodies {
			e.Subject, e.Body, e.Note, e.Refs = "", "", "", nil
		}
		out = append(out, e)
		return err
	}, `SELECT `+messageColumns+`, d.address, d.peer_id, d.state, d.note, d.reason, d.changed_at,
		COALESCE((SELECT principal FROM mailboxes b WHERE b.peer_id = d.peer_id), '')
		FROM deliveries d JOIN messages m ON m.message_id = d.message_id WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading envelopes: %w", err)
	}
	return out, nil
}

// Mailbox lists the open deliveries of a peer; bodies: with their texts.
func (d Desk) Mailbox(ctx context.Context, peerID string, bodies bool) ([]Envelope, error) {
	var out []Envelope
	err := d.b.read(ctx, func(j *job) (err error) {
		out, err = j.history.envelopes(bodies, `d.peer_id = ?1 AND `+isOpen+` ORDER BY d.seq, d.message_id`, peerID)
		return err
	})
	return out, err
}

// holdsMax bounds each of the two lists of Holds.
const holdsMax = 1000

// Holds lists the held deliveries, and the dead or expired ones that can be sent again
// because their text and recipient still exist.
func (d Desk) Holds(ctx context.Context) ([]Envelope, error) {
	var out []Envelope
	err := d.b.read(ctx, func(j *job) error {
		held, err := j.history.envelopes(false, isOpen+` AND d.state = 'held' AND d.peer_id IN (SELECT peer_id FROM mailboxes WHERE held > 0)
			ORDER BY d.message_id, d.peer_id LIMIT ?1`, holdsMax)
		if err != nil {
			return err
		}
		again, err := j.history.envelopes(false, isFinal+` AND d.due > ?1 AND d.due <= ?2 AND d.state IN ('dead', 'expired') AND d.again_as = '' AND d.reason <> 'inherited'
			AND m.body <> '' AND d.peer_id IN (SELECT peer_id FROM mailboxes WHERE active = 1) ORDER BY d.message_id LIMIT ?3`,
			j.now, j.now+j.b.o.Limits.BodyKept.Milliseconds(), holdsMax)
		out = append(held, again...)
		return err
	})
	return out, err
}

// Find returns a peer by id, name or name@namespace, for the operator. A bare name that
// several namespaces have is ambiguous: InvalidArgument.
func (d Desk) Find(ctx context.Context, address string) (Peer, error) {
	var out Peer
	err := d.b.read(ctx, func(j *job) error {
		var err error
		if out, err = j.directory.resolve(Peer{Node: d.b.o.Node, Namespace: DefaultNamespace}, address); err == nil {
			return nil
		}
		if !errors.Is(err, store.ErrNoRow) {
			return err
		}
		var id string
		var n int
		err = j.Row([]any{&n, &id}, `SELECT count(*), COALESCE(min(peer_id), '') FROM peers WHERE kind = 'agent' AND name = ?1`, address)
		switch {
		case err != nil:
			return err
		case n == 0:
			return refuse(UnknownRecipient)
		case n > 1:
			return refuse(InvalidArgument)
		}
		out, _, err = j.directory.look(`peers.peer_id = ?1`, id)
		return err
	})
	return out, err
}

// Totals returns the sums over all mailboxes, for metrics: Accepted, States and OK, with
// the number of agents.
func (d Desk) Totals(ctx context.Context) (Check, error) {
	var c Check
	err := d.b.read(ctx, func(j *job) error {
		c = Check{}
		var t tally
		dest := append([]any{&c.Accepted}, t.places()...)
		query := `SELECT CAST(COALESCE(sum(accepted), 0) AS BIGINT)`
		for _, s := range states {
			query += `, CAST(COALESCE(sum(` + s + `), 0) AS BIGINT)`
		}
		if err := j.Row(dest, query+` FROM mailboxes`); err != nil {
			return err
		}
		c.States, c.OK = t.byState(), c.Accepted == t.sum()
		return j.Row([]any{&c.Peers}, `SELECT count(*) FROM peers WHERE kind = 'agent'`)
	})
	return c, err
}
