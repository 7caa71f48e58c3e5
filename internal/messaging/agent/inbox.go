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
	var b *mail.Batch
	end := endFound
	if limit, _ := c.s.settings.capped(c.args.int("wait_ms", 0)); limit == 0 {
		if b, err = c.takeFrom(ctx, &r); err == nil && !c.recorded {
			c.details = append(c.details, peerFields(b.Peer)...)
			err = c.nothing(end, 0)
		}
	} else {
		b, end, err = c.waitForMail(ctx, &r, limit)
	}
	if err != nil {
		return nil, err
	}
	out := c.batch(b, end == endTimeout)
	out.then = r.next(c, b)
	return out, nil
}

// waitForMail is inbox with a wait: it reads at once, and again after each signal of the
// mailbox.
func (c *call) waitForMail(ctx context.Context, r *reading, limit time.Duration) (b *mail.Batch, end ending, err error) {
	me, err := c.me(ctx)
	if err != nil {
		return nil, "", err
	}
	begin := time.Now()
	end, err = c.await(ctx, limit, []string{mail.TopicMailbox(me.ID)}, func() (bool, error) {
		if b, err = c.takeFrom(ctx, r); err != nil {
			return false, err
		}
		return len(b.Messages) > 0 || len(b.Counts.Notices) > 0, nil
	})
	if err == nil && !c.recorded {
		err = c.nothing(end, time.Since(begin).Milliseconds())
	}
	return b, end, err
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
