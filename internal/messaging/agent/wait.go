package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

// ending is the reason for which a wait ended.
type ending string

const (
	endFound    ending = "found"
	endTimeout  ending = "timeout"
	endShutdown ending = "shutdown"
)

// nothing records a call that found nothing, by itself or together with its repetitions.
func (c *call) nothing(end ending, waited int64) error {
	fields := []audit.Field{field("ended", string(end)), number("waited_ms", waited), number("given", 0)}
	parts := []string{c.pass.Act().Who.Key(), c.owner.Session, c.verb.name, c.pass.Rule()}
	for _, f := range c.details {
		parts = append(parts, f.Name, f.Value)
	}
	key := strings.Join(parts, "\x00")
	line := func() *audit.Record { return c.pass.Line(slices.Concat(c.details, fields)...) }
	if end != endShutdown && c.s.lulls.counts(key, waited, line) {
		return nil
	}
	if err := c.write(fields...); err != nil {
		return err
	}
	c.s.lulls.begin(key, time.Now())
	return nil
}

type waitOut struct {
	Reason       string      `json:"reason"`
	WaitedMS     int64       `json:"waited_ms"`
	Capped       bool        `json:"capped"`
	Cursor       string      `json:"cursor"`
	Pending      int         `json:"pending"`
	Held         int         `json:"held"`
	Missed       missedOut   `json:"missed"`
	Notices      []noticeOut `json:"notices"`
	MessageState string      `json:"message_state,omitempty"`
	SpawnState   string      `json:"spawn_state,omitempty"`
}

// waiting holds what a wait looks for, and what it has found.
type waiting struct {
	c              *call
	mail           bool
	message, spawn string

	out    waitOut
	me     mail.Peer
	counts mail.Counts
}

// wait waits for news. It returns no text of messages, leases nothing and confirms no
// message; its cursor covers the notices that it shows.
func wait(ctx context.Context, c *call) (*answer, error) {
	me, err := c.me(ctx)
	if err != nil {
		return nil, err
	}
	w := &waiting{c: c, me: me, mail: c.args.bool("mail", true), message: c.args.str("message_id", ""), spawn: c.args.str("spawn_id", "")}
	var topics []string
	if w.message != "" {
		topics = append(topics, mail.TopicMessage(w.message))
	}
	if w.spawn != "" {
		topics = append(topics, mail.TopicSpawn(w.spawn))
	}
	c.takes = w.mail
	limit, lowered := c.s.settings.capped(c.args.int("wait_ms", 25000))
	begin := time.Now()
	return c.await(ctx, limit, me.ID, topics, w.look, func(end ending) (*answer, error) {
		w.out.WaitedMS, w.out.Capped = time.Since(begin).Milliseconds(), lowered
		return w.end(end)
	})
}

// end records the call and returns its answer.
func (w *waiting) end(end ending) (*answer, error) {
	if end != endFound {
		w.out.Reason = string(end)
	}
	var err error
	if end == endTimeout && w.message == "" && w.spawn == "" {
		err = w.c.nothing(end, w.out.WaitedMS)
	} else {
		err = w.c.write(w.fields()...)
	}
	if err != nil {
		return nil, err
	}
	return w.answer(), nil
}

// look reads what the answer reports. It finds news that the call waits for.
func (w *waiting) look(ctx context.Context) (peer string, found bool, err error) {
	book := w.c.s.o.Book
	me, n, waiting, err := book.Look(ctx, w.c.owner)
	if err != nil {
		return "", false, err
	}
	w.me, w.counts = me, n
	reason := ""
	if w.mail && len(n.Notices) > 0 {
		reason = "notice"
	}
	if w.mail && len(waiting) > 0 {
		reason = "mail"
	}
	if w.spawn != "" {
		s, err := book.SpawnOf(ctx, w.c.owner, w.spawn)
		if err != nil {
			return "", false, err
		}
		if w.out.SpawnState = s.State; s.State != mail.Starting && s.State != mail.Running {
			reason = "spawn"
		}
	}
	if w.message != "" {
		ds, err := book.Status(ctx, w.c.owner, w.message)
		if err != nil {
			return "", false, err
		}
		settled := false
		if w.out.MessageState, settled = stateOf(ds); settled {
			reason = "message"
		}
	}
	w.out.Reason = reason
	return me.ID, reason != "", nil
}

// stateOf returns the state of a message to several recipients: the first that is open,
// otherwise the first that is not confirmed. settled: none is open.
func stateOf(ds []mail.Delivery) (state string, settled bool) {
	state, settled = mail.Acked, true
	for _, d := range ds {
		open := d.State == mail.Held || d.State == mail.Queued || d.State == mail.Leased
		if open && settled || settled && state == mail.Acked {
			state = d.State
		}
		settled = settled && !open
	}
	return state, settled
}

func (w *waiting) fields() []audit.Field {
	fields := []audit.Field{field("ended", w.out.Reason), number("waited_ms", w.out.WaitedMS)}
	if w.message != "" {
		fields = append(fields, field("message", w.message))
	}
	if w.spawn != "" {
		fields = append(fields, field("spawn", w.spawn))
	}
	return fields
}

func (w *waiting) answer() *answer {
	o := &w.out
	o.Pending, o.Held, o.Missed, o.Notices = w.counts.Pending, w.counts.Held, missedOut(w.counts.Missed), noticesOf(w.counts.Notices)
	o.Cursor = w.c.s.cursors.cursor(receiptOf(w.counts, w.me), w.c.owner.Session)
	f := newFence()
	f.say(fmt.Sprintf("Waited %d ms; ended by: %s.", o.WaitedMS, o.Reason))
	if o.MessageState != "" {
		f.say("The message is " + o.MessageState + ".")
	}
	if o.SpawnState != "" {
		f.say("The started agent is " + o.SpawnState + ".")
	}
	f.notices(o.Notices)
	f.counts(o.Pending, o.Held, o.Missed)
	if o.Reason == "mail" {
		f.say("Call inbox to read it.")
	}
	return &answer{text: f.String(), out: *o}
}
