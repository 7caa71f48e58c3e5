package agent

import (
	"context"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// position is the place after the last inbox answer of a session that passes no cursor:
// the next inbox confirms that answer. It is kept in memory only and belongs to one
// session. So messages that the client may not have received are returned again: after a
// restart of the daemon, in another session, and after an answer whose client had left.
type position struct {
	receipt mail.Receipt // of the last answer
	cut     bool         // its message was cut
}

// position returns the present position of a session; nil: there is none.
func (t *sessions) position(s *session) *position {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.position
}

// moveTo sets the position of a session; nil: the next inbox confirms nothing by itself.
func (t *sessions) moveTo(s *session, p *position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.position = p
}

// passed removes a position whose messages are confirmed, unless another answer has
// replaced it.
func (t *sessions) passed(s *session, p *position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.position == p {
		s.position = nil
	}
}

// reading is an inbox call during its execution.
type reading struct {
	mail.Fetch
	from *position // the position that it confirms instead of a cursor; nil: none
	ours bool      // it passes no cursor and is no peek: its answer sets the next position
}

// take reads the book once. The call has no record yet if nothing was done.
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
	if len(b.Messages) > 0 && !f.Peek {
		gave(c.s.sessions, c.session, b.Peer.ID, b.Messages[len(b.Messages)-1].Seq)
	}
	for i := range b.Messages {
		c.s.dueBy(b.Messages[i].LeaseExpiresAt)
	}
	return b, nil
}

// reading returns what the arguments ask for, from the position of the session. After a
// cut message, the default size is the largest, so that the message can be given whole.
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

// takeFrom is take from the position of the session. A position of an earlier peer or
// epoch confirms nothing.
func (c *call) takeFrom(ctx context.Context, r *reading) (*mail.Batch, error) {
	b, err := c.take(ctx, r.Fetch)
	if r.from != nil && isRefusal(err, mail.CursorInvalid) {
		r.After = nil
		b, err = c.take(ctx, r.Fetch)
	}
	if err != nil {
		return nil, err
	}
	r.After = nil // it is applied
	if r.from != nil {
		c.s.sessions.passed(c.session, r.from)
		r.from = nil
	}
	return b, nil
}

// next returns the function that sets the position when the answer is sent to a connected
// client: after this answer, or none for a client that passes cursors; nil: the position
// stays.
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

// receiptOf returns the receipt of an answer with these counts, for the peer p.
func receiptOf(n mail.Counts, p mail.Peer) mail.Receipt {
	r := n.Receipt
	r.PeerID, r.Epoch = p.ID, p.Epoch
	return r
}
