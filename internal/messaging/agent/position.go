package agent

import (
	"context"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// position is where the inbox of a session goes on that passes no cursor: behind
// its last answer. It is kept in memory alone and belongs to one session, so
// what nobody may have seen comes again: after a restart of the daemon, in
// another session, and after an answer whose client had left.
type position struct {
	receipt mail.Receipt // of that answer
	cut     bool         // its message was cut
}

// position is the present one of a session; nil: there is none.
func (t *sessions) position(s *session) *position {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.position
}

// moveTo sets it; nil: what was given is not confirmed by the next inbox.
func (t *sessions) moveTo(s *session, p *position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.position = p
}

// passed takes a position away whose messages are confirmed, unless another
// answer has set a new one since.
func (t *sessions) passed(s *session, p *position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.position == p {
		s.position = nil
	}
}

// reading is an inbox on its way.
type reading struct {
	mail.Fetch
	from *position // whose messages it confirms in the place of a cursor; nil: none
	ours bool      // it passes no cursor and takes: its answer is the next position
}

// take asks the book once. Where nothing was done the call has no record yet.
func (c *call) take(ctx context.Context, f mail.Fetch) (*mail.Batch, error) {
	noted := false
	f.Quiet = true
	b, err := c.s.o.Book.Inbox(ctx, c.owner, f, func(v *mail.Batch) any {
		noted = true
		return c.line(inboxFields(v)...)
	})
	if err != nil {
		return nil, err
	}
	c.recorded = c.recorded || noted
	c.as(b.Peer)
	for i := range b.Messages {
		c.s.dueBy(b.Messages[i].LeaseExpiresAt)
	}
	return b, nil
}

// reading is what the arguments ask for, from where the session stands. Behind a
// message that was cut, the rest is asked for with it.
func (c *call) reading() (r reading, err error) {
	a := c.args
	r.Fetch = mail.Fetch{Max: a.int("max", 20), MaxBytes: a.int("max_bytes", usualBytes), Thread: a.str("thread_id", ""), Peek: a.bool("peek", false)}
	r.ours = !a.has("after") && !r.Peek
	if !r.ours {
		r.After, err = c.s.cursors.receipt(a.str("after", ""), c.owner.Session)
		return r, err
	}
	if r.from = c.s.sessions.position(c.session); r.from != nil {
		receipt := r.from.receipt
		r.After = &receipt
		if r.from.cut && !a.has("max_bytes") {
			r.MaxBytes = mostBytes
		}
	}
	return r, nil
}

// Bytes of bodies in one answer of inbox.
const (
	usualBytes = 32 << 10
	mostBytes  = 128 << 10
)

// takeFrom is take, from where the session stands. A position of an earlier peer
// or epoch confirms nothing.
func (c *call) takeFrom(ctx context.Context, r *reading) (*mail.Batch, error) {
	b, err := c.take(ctx, r.Fetch)
	if r.from != nil && isRefusal(err, mail.CursorInvalid) {
		r.After = nil
		b, err = c.take(ctx, r.Fetch)
	}
	if err != nil {
		return nil, err
	}
	r.After = nil // it is confirmed
	if r.from != nil {
		c.s.sessions.passed(c.session, r.from)
		r.from = nil
	}
	return b, nil
}

// next is what an answer that reaches its client sets: the position behind it,
// or none where the client keeps cursors.
func (r *reading) next(c *call, b *mail.Batch) func() {
	switch {
	case r.Peek:
		return nil
	case !r.ours:
		return func() { c.s.sessions.moveTo(c.session, nil) }
	}
	p := &position{receipt: receiptOf(b.Counts, b.Peer), cut: len(b.Messages) > 0 && b.Messages[0].Truncated}
	if len(b.Messages)+len(b.Counts.Notices) == 0 {
		return nil
	}
	return func() { c.s.sessions.moveTo(c.session, p) }
}

// receiptOf is the receipt of an answer with these counts.
func receiptOf(n mail.Counts, p mail.Peer) mail.Receipt {
	r := n.Receipt
	r.PeerID, r.Epoch = p.ID, p.Epoch
	return r
}
