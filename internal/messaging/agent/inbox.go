package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
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

// inbox confirms the messages that the cursor covers, and returns the oldest
// unconfirmed ones. When there are none it waits, if asked to. A confirmation is
// committed and recorded at once; messages that arrive during the wait have a
// second record, because they are a second commit.
func inbox(ctx context.Context, c *call) (*answer, error) {
	f, err := c.fetch()
	if err != nil {
		return nil, err
	}
	limit, _ := c.s.capped(c.args.int("wait_ms", 0))
	if limit == 0 {
		b, err := c.take(ctx, f, true)
		if err != nil {
			return nil, err
		}
		return c.batch(b, false), nil
	}
	return c.waitForMail(ctx, f, limit)
}

// fetch is what the arguments ask for.
func (c *call) fetch() (f mail.Fetch, err error) {
	a := c.args
	f = mail.Fetch{Max: a.int("max", 20), MaxBytes: a.int("max_bytes", 32768), Thread: a.str("thread_id", ""), Peek: a.bool("peek", false)}
	f.After, err = c.s.receipt(a.str("after", ""), c.owner.Session)
	return f, err
}

// take asks the book once. Where nothing was done, and it is not the last time
// that it is asked, there is nothing to record.
func (c *call) take(ctx context.Context, f mail.Fetch, final bool) (*mail.Batch, error) {
	noted := false
	f.Quiet = !final
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

func inboxFields(v *mail.Batch) []audit.Field {
	var ids []string
	var size int64
	for i := range v.Messages {
		ids = append(ids, v.Messages[i].ID)
		size += int64(len(v.Messages[i].Body))
	}
	fields := append(peerFields(v.Peer), number("confirmed", int64(v.Acked)), number("given", int64(len(ids))))
	fields = append(fields, idFields("messages", ids)...)
	if len(v.Counts.Notices) > 0 {
		fields = append(fields, number("notices", int64(len(v.Counts.Notices))))
	}
	return append(fields, number("size", size))
}

// waitForMail is inbox with a wait: it asks at once, and again each time that
// something happened to the mailbox.
func (c *call) waitForMail(ctx context.Context, f mail.Fetch, limit time.Duration) (*answer, error) {
	me, err := c.me(ctx)
	if err != nil {
		return nil, err
	}
	var b *mail.Batch
	end, err := c.await(ctx, limit, []string{mail.TopicMailbox(me.ID)}, func() (bool, error) {
		if b, err = c.take(ctx, f, false); err != nil {
			return false, err
		}
		f.After = nil // it is confirmed
		return len(b.Messages) > 0 || len(b.Counts.Notices) > 0, nil
	})
	if err != nil {
		return nil, err
	}
	if !c.recorded {
		if err := c.write(field("ended", string(end)), number("given", 0)); err != nil {
			return nil, err
		}
	}
	return c.batch(b, end == endTimeout), nil
}

func (c *call) batch(b *mail.Batch, timedOut bool) *answer {
	out := inboxOut{Messages: []messageOut{}, Cursor: c.s.cursor(receiptOf(b.Counts, b.Peer), c.owner.Session), More: b.More,
		Pending: b.Counts.Pending, Held: b.Counts.Held, Missed: missedOut(b.Counts.Missed), Notices: noticesOf(b.Counts.Notices), TimedOut: timedOut}
	f := newFence()
	f.say(fmt.Sprintf("%s, %d notices.", messages(len(b.Messages)), len(out.Notices)))
	for i := range b.Messages {
		out.Messages = append(out.Messages, messageOf(&b.Messages[i], b.Peer))
		f.message(&out.Messages[i])
	}
	f.notices(out.Notices)
	f.counts(out.Pending, out.Held, out.Missed)
	f.say("To confirm these and go on: inbox with after=" + out.Cursor)
	return &answer{text: f.String(), out: out}
}
