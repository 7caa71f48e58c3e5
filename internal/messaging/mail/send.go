package mail

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Send accepts a message for all recipients or for none. note makes the record, which is
// written before the commit; it may run more than once when the store repeats the job,
// and the last result counts. Errors: InvalidArgument, AuditUnavailable (the record
// cannot be written), NotRegistered, Fenced, UnknownRecipient, RecipientRefuses,
// MailboxFull, SenderQuota, DuplicateSuppressed, LoopSuspected, IdempotencyConflict,
// UnknownMessage (a reply to a message that the sender did not get), Budget. ErrChanged: the
// draft is about peers of Recall, and has to be decided again about those of Resolve.
func (b *Book) Send(ctx context.Context, o Owner, d Draft, note Note[Sent]) (*Sent, error) {
	if err := d.check(b.o.Limits); err != nil {
		return nil, err
	}
	return perform(ctx, b, note, func(j *job) (*Sent, error) {
		p, err := j.directory.sender(o, d.From)
		if err != nil {
			return nil, err
		}
		out, err := j.sending.send(p.sender(kindAgent), d)
		if err != nil {
			return nil, err
		}
		out.From = p
		return out, nil
	})
}

// Send sends a message of the operator of the node, without a sending peer. It is
// never held.
func (k Desk) Send(ctx context.Context, d Draft, note Note[Sent]) (*Sent, error) {
	if err := d.check(k.b.o.Limits); err != nil {
		return nil, err
	}
	for i := range d.To {
		d.To[i].Authority, d.To[i].Hold = AuthorityOperator, false
	}
	return perform(ctx, k.b, note, func(j *job) (*Sent, error) {
		// This update replaces the fence for a sender without a session: its sends are
		// serialised.
		_, err := j.Exec(`UPDATE peers SET last_seen = ?2 WHERE peer_id = ?1`, k.b.operator.id, j.now)
		if err != nil {
			return nil, err
		}
		out, err := j.sending.send(k.b.operator, d)
		if err != nil {
			return nil, err
		}
		out.From = k.b.operator.peer(k.b.o.Node)
		return out, nil
	})
}

// check refuses invalid drafts, sets defaults, and removes duplicate recipients in a copy
// of To.
func (d *Draft) check(l Limits) error {
	d.Kind = cmp.Or(d.Kind, "inform")
	d.TTL = cmp.Or(d.TTL, int64(l.TTL/time.Second))
	var to []Recipient
	for _, r := range d.To {
		if !slices.ContainsFunc(to, func(x Recipient) bool { return x.PeerID == r.PeerID }) {
			to = append(to, r) // a peer can be addressed by two names
		}
	}
	d.To = to
	if len(to) == 0 || len(to) > l.Recipients || d.Body == "" || d.TTL < 1 || (d.Thread != "" && !isID(d.Thread)) {
		return refuse(InvalidArgument)
	}
	return nil
}

// send sends a draft: it applies the idempotency key, charges the spawn, and places the
// message.
func (j sending) send(from sender, d Draft) (*Sent, error) {
	if d.Key != "" {
		var before Sent
		replay, err := j.idempotency.key(from, "send", d.Key, d.Fingerprint, &before)
		if err != nil {
			return nil, err
		}
		if replay && d.From != nil {
			return nil, ErrChanged // the recipients were not compared
		}
		if replay {
			before.Replay = true
			return &before, nil
		}
	}
	if from.spawn != "" {
		if err := j.spawning.charge(from.spawn); err != nil {
			return nil, err
		}
	}
	m, err := j.compose(from, d)
	if err != nil {
		return nil, err
	}
	out := &Sent{MessageID: m.id, Thread: m.thread, AcceptedAt: j.now, Cleaned: d.Cleaned}
	if m.replyTo != "" {
		if out.ConfirmedID, err = j.answered(m, d.To); err != nil {
			return nil, err
		}
	}
	if out.Deliveries, err = j.placing.place(m, d.To); err != nil {
		return nil, err
	}
	if d.Key != "" {
		err = j.idempotency.keep(from, "send", d.Key, out)
	}
	return out, err
}

// outgoing is a message that is about to be placed into mailboxes.
type outgoing struct {
	id, thread, replyTo string
	depth               int64
	from                sender
	kind                string
	subject, body, refs string
	sha256              []byte
	ttl                 int64 // milliseconds
	sentAt              int64
	bytes               int64
	again               bool // the operator sends it again
}

// compose makes the message of a draft. It refuses a reply to a message that the sender
// neither sent nor was given, and a reply that is too deep.
func (j sending) compose(from sender, d Draft) (outgoing, error) {
	sum := sha256.Sum256([]byte(d.Body))
	m := outgoing{id: j.b.ids.next(j.now), sentAt: j.now, replyTo: d.ReplyTo, from: from, kind: d.Kind,
		subject: d.Subject, body: d.Body, sha256: sum[:], bytes: int64(len(d.Body)), ttl: d.TTL * 1000}
	if len(d.Refs) > 0 {
		refs, err := json.Marshal(d.Refs)
		if err != nil {
			return m, fmt.Errorf("writing refs: %w", err)
		}
		m.refs = string(refs)
	}
	m.thread = cmp.Or(d.Thread, m.id)
	if d.ReplyTo == "" {
		return m, nil
	}
	return m, j.reply(&m)
}

// reply finds the message that m answers, which m's sender must have sent or been given,
// and puts m into its thread.
func (j sending) reply(m *outgoing) error {
	var sentBy string
	var given int64
	err := j.Row([]any{&m.thread, &m.depth, &sentBy, &given}, `SELECT thread_id, depth, sender_id,
		COALESCE((SELECT d.given_at FROM deliveries d WHERE d.message_id = messages.message_id AND d.peer_id = ?2), 0)
		FROM messages WHERE message_id = ?1`, m.replyTo, m.from.id)
	switch {
	case errors.Is(err, store.ErrNoRow), err == nil && sentBy != m.from.id && given == 0:
		return refuse(UnknownMessage)
	case err != nil:
		return fmt.Errorf("reading the message that is answered: %w", err)
	}
	if m.depth++; m.from.kind == kindAgent && j.b.o.Limits.ReplyDepth > 0 && m.depth > int64(j.b.o.Limits.ReplyDepth) {
		return refuse(LoopSuspected)
	}
	return nil
}

// openTo selects the open delivery of a message to a peer that was given it.
const openTo = `message_id = ?1 AND peer_id = ?2 AND ` + isOpen + ` AND given_at > 0`

// answered acknowledges the message that m replies to: an answer shows that its sender
// has read it. The mailboxes of all recipients are locked with the sender's own, in the
// common order. It returns the id of the acknowledged message; empty: none.
func (j sending) answered(m outgoing, to []Recipient) (string, error) {
	found, err := j.mailboxes.rows(openTo, m.replyTo, m.from.id)
	if err != nil || len(found) == 0 {
		return "", err
	}
	peers := []string{m.from.id}
	for _, r := range to {
		peers = append(peers, r.PeerID)
	}
	if err := j.mailboxes.boxesOf(peers...); err != nil {
		return "", err
	}
	found, err = j.mailboxes.rows(openTo, m.replyTo, m.from.id) // read again under the lock
	if x := j.boxes[m.from.id]; err == nil && x != nil && len(found) > 0 {
		return m.replyTo, j.mailboxes.end(x, found[0], Acked, "", "")
	}
	return "", err
}

// repeats returns the part of the digest that is indexed for the search of repeats.
func (m outgoing) repeats() int64 { return int64(binary.BigEndian.Uint64(m.sha256)) }

// message returns the envelope fields of m for a recipient.
func (m outgoing) message(lineage, authority string) Message {
	return Message{ID: m.id, SentAt: m.sentAt, BodySHA256: hex.EncodeToString(m.sha256), Authority: authority, From: From{
		PeerID: m.from.id, Name: m.from.name, Namespace: m.from.namespace, Principal: m.from.principal,
		Grade: m.from.grade, Epoch: m.from.epoch, Lineage: lineage}}
}

// store inserts the message, once for all its recipients. The columns priority and
// ack_deadline are constant and not used.
func (m outgoing) store(j *job) error {
	_, err := j.Exec(`INSERT INTO messages (message_id, thread_id, reply_to, depth, kind, priority, subject, body, bytes, sha256,
		repeats, refs, sent_at, ttl, ack_deadline, sender_id, from_name, from_namespace, from_principal, from_grade, from_epoch)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)`,
		m.id, m.thread, m.replyTo, m.depth, m.kind, "normal", m.subject, m.body, m.bytes, m.sha256,
		m.repeats(), m.refs, m.sentAt, m.ttl, 0, m.from.id, m.from.name, m.from.namespace, m.from.principal,
		m.from.grade, m.from.epoch)
	if err != nil {
		return fmt.Errorf("storing a message: %w", err)
	}
	return nil
}
