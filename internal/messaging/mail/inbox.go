package mail

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/trust/visible"
)

const (
	inboxMax   = 50
	inboxUsual = 20
	bytesUsual = 32 << 10
	bytesMax   = 128 << 10
)

// Inbox acknowledges by receipt, and leases and returns the oldest unacknowledged
// messages. Errors: NotRegistered, Fenced, CursorInvalid.
//
// An unacknowledged message that this session was given is returned again under
// the same lease, renewed, and marked (Message.Again). The answer therefore
// always holds the oldest messages, and its receipt covers nothing else. No
// receipt covers a message that was cut.
func (b *Book) Inbox(ctx context.Context, o Owner, f Fetch, note Note[Batch]) (*Batch, error) {
	f.Max = min(cmp.Or(f.Max, inboxUsual), inboxMax)
	f.MaxBytes = min(cmp.Or(f.MaxBytes, bytesUsual), bytesMax)
	if f.Max < 1 || f.MaxBytes < 1 {
		return nil, refuse(InvalidArgument)
	}
	out, idle, err := b.peek(ctx, o, f)
	if err != nil {
		return nil, err
	}
	if note == nil {
		return nil, wrap(store.ErrUnrecorded)
	}
	if idle && f.Quiet && out.empty() {
		return out, nil
	}
	return perform(ctx, b, note, func(j *job) (*Batch, error) {
		if idle {
			return out, nil
		}
		return j.receiving.fetch(o, f)
	})
}

// empty reports that b acknowledged nothing and gives nothing.
func (b *Batch) empty() bool {
	return b.Acked == 0 && len(b.Messages) == 0 && len(b.Counts.Notices) == 0
}

// peek answers an inbox call that changes nothing: a peek, or a call with nothing to give
// and no new receipt. idle reports that out is the answer.
func (b *Book) peek(ctx context.Context, o Owner, f Fetch) (out *Batch, idle bool, err error) {
	err = b.read(ctx, func(j *job) error {
		p, g, err := j.directory.glance(o)
		if err != nil {
			return err
		}
		if err := f.After.valid(p, g); err != nil {
			return err
		}
		covers := f.After != nil && f.After.Notice > g.covered
		if idle = f.Peek || (g.tally.pending() == 0 && !covers); !idle {
			return nil
		}
		out = &Batch{}
		if f.Peek && g.tally.pending() > 0 {
			if err := j.receiving.show(p, f, out); err != nil {
				return err
			}
		}
		out.Counts, err = j.mailboxes.counts(p, g, Receipt{}) // no message was given
		p.Pending, p.Held, p.Lineage = 0, 0, LineageSelf
		out.Peer = p
		return err
	})
	return out, idle, err
}

// valid refuses the receipt of another peer or epoch, and one that was never issued.
func (r *Receipt) valid(p Peer, g glimpse) error {
	if r == nil || (r.PeerID == p.ID && r.Epoch == p.Epoch && r.Seq >= 0 && r.Seq <= g.lastSeq && r.Notice >= 0 && r.Notice <= g.lastNotice) {
		return nil
	}
	return refuse(CursorInvalid)
}

// fetch answers an inbox call that may change the mailbox.
func (j receiving) fetch(o Owner, f Fetch) (*Batch, error) {
	out := &Batch{}
	p, err := j.directory.fence(o)
	if err != nil {
		return nil, err
	}
	x, err := j.mailboxes.box(p.ID)
	if err != nil {
		return nil, err
	}
	_, g, err := j.directory.look(`peers.peer_id = ?1`, p.ID)
	if err != nil {
		return nil, err
	}
	if err := f.After.valid(p, g); err != nil {
		return nil, err
	}
	if f.After != nil {
		if err := j.receive(x, p, f.After, out); err != nil {
			return nil, err
		}
	}
	if x.tally.pending() > 0 {
		if _, err := j.mailboxes.settle(x, int(x.tally.open())); err != nil {
			return nil, err
		}
	}
	given := Receipt{Thread: f.Thread}
	if x.tally.pending() > 0 {
		if given.Seq, err = j.give(x, p, f, out); err != nil {
			return nil, err
		}
	}
	if err := j.flush(); err != nil {
		return nil, err
	}
	p, g, err = j.directory.look(`peers.peer_id = ?1`, p.ID)
	if err != nil {
		return nil, err
	}
	out.Counts, err = j.mailboxes.counts(p, g, given)
	p.Pending, p.Held, p.Lineage = 0, 0, LineageSelf
	out.Peer = p
	return out, err
}

// receive applies a receipt: the messages up to it that this session was given are
// acknowledged, also when a lease has ended and the message was not leased again since.
// Messages that were cut are not acknowledged. The notices of the receipt are covered.
func (j receiving) receive(x *box, p Peer, r *Receipt, out *Batch) error {
	const covered = `peer_id = ?1 AND ` + isOpen + ` AND seq > 0 AND seq <= ?2 AND given_epoch = ?3 AND cut = 0 AND (?4 = '' OR thread_id = ?4)`
	if x.tally.pending() > 0 {
		got, err := j.mailboxes.rows(covered, p.ID, r.Seq, p.Epoch, r.Thread)
		if err != nil {
			return fmt.Errorf("reading what a receipt covers: %w", err)
		}
		if err := j.acknowledge(x, p, got, covered, p.ID, r.Seq, p.Epoch, r.Thread); err != nil {
			return err
		}
		out.Acked = len(got)
	}
	_, err := j.Exec(`UPDATE outboxes SET covered = ?2 WHERE peer_id = ?1 AND covered < ?2`, p.ID, r.Notice)
	return err
}

// acknowledge brings got, which are the rows that match where, to acked.
func (j receiving) acknowledge(x *box, p Peer, got []row, where string, args ...any) error {
	if len(got) == 0 {
		return nil
	}
	n := len(args)
	query := fmt.Sprintf(`UPDATE deliveries SET state = 'acked', acked_at = ?%d, changed_at = ?%d, due = ?%d, reason = '' WHERE `, n+1, n+1, n+2)
	changed, err := j.Exec(query+where, append(args, j.now, j.now+j.b.o.Limits.ConfirmedKept.Milliseconds())...)
	if err == nil && changed != int64(len(got)) {
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("acknowledging: %w", err)
	}
	for _, r := range got {
		x.shift(r.state, Acked, r.bytes)
		j.mailboxes.moved(r, Acked, p.Epoch, "")
	}
	return nil
}

// oldest selects the unacknowledged messages of a mailbox in their order; the limit is
// one more than are wanted, to tell whether there are more.
const oldest = `peer_id = ?1 AND ` + isOpen + ` AND seq > 0 AND (?2 = '' OR thread_id = ?2) AND expires_at > ?3 ORDER BY seq LIMIT ?4`

// pick takes as many of rows as fit. The first is always taken; cut: it does not fit whole.
func pick(rows []row, f Fetch) (picked []row, cut, more bool) {
	room := int64(f.MaxBytes)
	for i, r := range rows {
		if i == f.Max || (i > 0 && r.bytes > room) {
			return rows[:i], false, true
		}
		if r.bytes > room {
			return rows[:1], true, len(rows) > 1
		}
		room -= r.bytes
	}
	return rows, false, false
}

// give leases the oldest messages to the session of p, and reads them into out. It
// returns the highest seq of the messages given whole; 0: none.
func (j receiving) give(x *box, p Peer, f Fetch, out *Batch) (int64, error) {
	rows, err := j.mailboxes.rows(oldest, p.ID, f.Thread, j.now, f.Max+1)
	if err != nil {
		return 0, fmt.Errorf("reading the oldest messages: %w", err)
	}
	picked, cut, more := pick(rows, f)
	out.More = more
	if len(picked) == 0 {
		return 0, nil
	}
	upTo := picked[len(picked)-1].seq
	until := j.now + j.b.o.Limits.Lease.Milliseconds()
	n, err := j.Exec(`UPDATE deliveries SET attempts = attempts + CASE WHEN state = 'queued' THEN 1 ELSE 0 END, state = 'leased',
		changed_at = CASE WHEN state = 'queued' THEN ?5 ELSE changed_at END, given_at = CASE WHEN given_at = 0 THEN ?5 ELSE given_at END,
		lease_until = ?6, due = CASE WHEN expires_at < ?6 THEN expires_at ELSE ?6 END, given_epoch = ?7, cut = ?8
		WHERE peer_id = ?1 AND `+isOpen+` AND seq > 0 AND (?2 = '' OR thread_id = ?2) AND expires_at > ?3 AND seq <= ?4`,
		p.ID, f.Thread, j.now, upTo, j.now, until, p.Epoch, cut)
	if err == nil && n != int64(len(picked)) {
		err = errMoved
	}
	if err != nil {
		return 0, fmt.Errorf("leasing: %w", err)
	}
	for _, r := range picked {
		if r.state == Queued {
			x.shift(Queued, Leased, r.bytes)
			j.mailboxes.moved(r, Leased, p.Epoch, "")
		}
	}
	if err := j.read(p, f, picked, cut, out); err != nil || cut {
		return 0, err
	}
	return upTo, nil
}

// show reads the oldest messages into out without a change.
func (j receiving) show(p Peer, f Fetch, out *Batch) error {
	rows, err := j.mailboxes.rows(oldest, p.ID, f.Thread, j.now, f.Max+1)
	if err != nil {
		return fmt.Errorf("reading the oldest messages: %w", err)
	}
	picked, cut, more := pick(rows, f)
	if out.More = more; len(picked) == 0 {
		return nil
	}
	return j.read(p, f, picked, cut, out)
}

// read reads the picked messages into out, and marks those that were given before.
func (j receiving) read(p Peer, f Fetch, picked []row, cut bool, out *Batch) (err error) {
	again := make(map[string]bool)
	for _, r := range picked {
		again[r.message] = r.state == Leased
	}
	out.Messages, err = j.messages(`d.peer_id = ?1 AND `+isOpen+` AND d.seq > 0 AND (?2 = '' OR d.thread_id = ?2) AND d.expires_at > ?3
		AND d.seq <= ?4 ORDER BY d.seq`, p.ID, f.Thread, j.now, picked[len(picked)-1].seq)
	for i := range out.Messages {
		out.Messages[i].Again = again[out.Messages[i].ID]
	}
	if cut && len(out.Messages) > 0 {
		out.Messages[0].cut(f.MaxBytes)
	}
	return err
}

// cut shortens the body to at most n bytes of whole characters.
func (m *Message) cut(n int) {
	if len(m.Body) <= n {
		return
	}
	m.Body, m.Truncated = visible.Cut(m.Body, n), true
}

const messageColumns = `m.message_id, m.thread_id, m.reply_to, d.seq, m.kind, m.subject, m.body, m.bytes, m.sha256, m.refs,
	m.sender_id, m.from_name, m.from_namespace, m.from_principal, m.from_grade, m.from_epoch, d.lineage, d.authority, m.sent_at,
	d.expires_at, d.attempts, d.lease_until, d.sig`

// places returns the destinations for a row of messageColumns; done completes the message
// after the scan.
func (m *Message) places() (dest []any, done func() error) {
	var sum []byte
	var refs string
	dest = []any{&m.ID, &m.Thread, &m.ReplyTo, &m.Seq, &m.Kind, &m.Subject, &m.Body, &m.BodyBytes, &sum, &refs,
		&m.From.PeerID, &m.From.Name, &m.From.Namespace, &m.From.Principal, &m.From.Grade, &m.From.Epoch, &m.From.Lineage, &m.Authority, &m.SentAt,
		&m.ExpiresAt, &m.Attempt, &m.LeaseExpiresAt, &m.Sig}
	return dest, func() error {
		m.BodySHA256 = hex.EncodeToString(sum)
		if refs == "" {
			return nil
		}
		return json.Unmarshal([]byte(refs), &m.Refs)
	}
}

func (j receiving) messages(where string, args ...any) ([]Message, error) {
	var all []Message
	err := j.Each(func(scan func(...any) error) error {
		var m Message
		dest, done := m.places()
		err := errors.Join(scan(dest...), done())
		all = append(all, m)
		return err
	}, `SELECT `+messageColumns+` FROM deliveries d JOIN messages m ON m.message_id = d.message_id WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading messages: %w", err)
	}
	return all, nil
}
