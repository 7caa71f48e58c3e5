package agent

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

type inboxOut struct {
	Messages []messageOut `json:"messages"`
	Cursor   string       `json:"cursor"`
	More     bool         `json:"more"`
	Pending  int          `json:"pending"`
	Held     int          `json:"held"`
	Missed   missedOut    `json:"missed"`
	Notices  []noticeOut  `json:"notices"`
	TimedOut bool         `json:"timed_out"`
}

// inbox confirms the messages that the cursor covers, or without one those of the
// session's last answer, and returns the oldest unconfirmed ones. When there are none it
// waits, if asked to. A confirmation is committed and recorded at once; messages that
// arrive during the wait are a second commit with a second record.
func inbox(ctx context.Context, c *call) (*answer, error) {
	r, err := c.reading()
	if err != nil {
		return nil, err
	}
	if limit, _ := c.s.settings.capped(c.args.int("wait_ms", 0)); limit > 0 {
		return c.waitForMail(ctx, &r, limit)
	}
	b, err := c.takeFrom(ctx, &r)
	if err != nil {
		return nil, err
	}
	if !c.recorded {
		c.details = append(c.details, peerFields(b.Peer)...)
	}
	return r.given(c, b, endFound, 0)
}

// waitForMail is inbox with a wait: it reads at once, and again after each signal of the
// mailbox.
func (c *call) waitForMail(ctx context.Context, r *reading, limit time.Duration) (*answer, error) {
	me, err := c.me(ctx)
	if err != nil {
		return nil, err
	}
	c.takes = r.Thread == ""
	begin := time.Now()
	var b *mail.Batch
	look := func(ctx context.Context) (string, bool, error) {
		if b, err = c.takeFrom(ctx, r); err != nil {
			return "", false, err
		}
		return b.Peer.ID, len(b.Messages) > 0 || len(b.Counts.Notices) > 0, nil
	}
	return c.await(ctx, limit, me.ID, nil, look, func(end ending) (*answer, error) {
		return r.given(c, b, end, time.Since(begin).Milliseconds())
	})
}

// given returns the answer with what was read, and records the call if that has no record.
func (r *reading) given(c *call, b *mail.Batch, end ending, waited int64) (*answer, error) {
	if !c.recorded {
		if err := c.nothing(end, waited); err != nil {
			return nil, err
		}
	}
	out := c.batch(b, end == endTimeout)
	out.then = r.next(c, b)
	return out, nil
}

func (c *call) batch(b *mail.Batch, timedOut bool) *answer {
	out := inboxOut{Messages: []messageOut{}, Cursor: c.s.cursors.cursor(receiptOf(b.Counts, b.Peer), c.owner.Session), More: b.More,
		Pending: b.Counts.Pending, Held: b.Counts.Held, Missed: missedOut(b.Counts.Missed), Notices: noticesOf(b.Counts.Notices), TimedOut: timedOut}
	f := newFence()
	f.say(headline(len(b.Messages), timedOut))
	for i := range b.Messages {
		out.Messages = append(out.Messages, messageOf(&b.Messages[i], b.Peer))
		f.message(&out.Messages[i])
	}
	f.notices(out.Notices)
	if b.More || out.Held > 0 || out.Missed != (missedOut{}) {
		f.counts(out.Pending, out.Held, out.Missed)
	}
	f.WriteString("cursor=" + out.Cursor)
	return c.withBodies(f.String(), len(b.Messages), out)
}

// headline states how many messages there are, or why there are none.
func headline(n int, timedOut bool) string {
	switch {
	case n > 0:
		return messages(n) + ". The next inbox confirms them."
	case timedOut:
		return "No message arrived in time."
	}
	return "Nothing new."
}
