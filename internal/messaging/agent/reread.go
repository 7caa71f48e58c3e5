package agent

import (
	"context"
	"fmt"

	"github.com/doorward/doorward/internal/messaging/mail"
)

type readOut struct {
	Messages []saidOut `json:"messages"`
	More     bool      `json:"more"`
}

type saidOut struct {
	MessageID  string  `json:"message_id"`
	ThreadID   string  `json:"thread_id"`
	ReplyTo    string  `json:"reply_to,omitempty"`
	Kind       string  `json:"kind"`
	From       fromOut `json:"from"`
	To         string  `json:"to"`
	Authority  string  `json:"authority"`
	Trust      string  `json:"trust"`
	Provenance string  `json:"provenance"`
	Subject    string  `json:"subject,omitempty"`
	Body       string  `json:"body"`
	BodyBytes  int     `json:"body_bytes"`
	Truncated  bool    `json:"truncated"`
	SentAt     string  `json:"sent_at"`
}

// read returns messages of the caller again: those that it sent, and those that it was
// given and has confirmed. It changes nothing.
func read(ctx context.Context, c *call) (*answer, error) {
	q := mail.Query{Thread: c.args.str("thread", ""), Text: c.args.str("text", ""), Max: c.args.int("limit", 20), MaxBytes: usualBytes}
	me, all, more, err := c.s.o.Book.Read(ctx, c.owner, q)
	if noPeer(err) {
		c.s.lose(c.session, c.before)
	}
	if err != nil {
		return nil, err
	}
	c.as(me)
	var ids []string
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	fields := append(peerFields(me), number("given", int64(len(all))))
	if err := c.write(append(fields, idFields("messages", ids)...)...); err != nil {
		return nil, err
	}
	return c.said(me, all, more), nil
}

func (c *call) said(me mail.Peer, all []mail.Said, more bool) *answer {
	out := readOut{Messages: []saidOut{}, More: more}
	f := newFence()
	f.say(messages(len(all)) + ".")
	for i := range all {
		out.Messages = append(out.Messages, saidOf(&all[i], me))
		f.said(&out.Messages[i])
	}
	if more {
		f.say("There are older ones: ask for a thread, or for another text.")
	}
	return c.withBodies(f.String(), len(all), out)
}

func saidOf(s *mail.Said, me mail.Peer) saidOut {
	m := messageOf(&s.Message, me)
	return saidOut{MessageID: m.MessageID, ThreadID: m.ThreadID, ReplyTo: m.ReplyTo, Kind: m.Kind, From: m.From, To: s.To, Authority: m.Authority,
		Trust: m.Trust, Provenance: m.Provenance, Subject: m.Subject, Body: m.Body, BodyBytes: m.BodyBytes, Truncated: m.Truncated, SentAt: m.SentAt}
}

// said writes one message in its frame.
func (f *fence) said(m *saidOut) {
	f.open("message", "id", m.MessageID, "from", m.From.Name, "principal", m.From.Principal, "grade", m.From.Grade, "lineage", m.From.Lineage,
		"authority", m.Authority, "to", m.To, "kind", m.Kind, "thread", m.ThreadID, "reply_to", m.ReplyTo, "sent", m.SentAt)
	f.say(m.Provenance)
	f.labelled("subject", m.Subject)
	f.data(m.Body)
	f.close("message")
	if m.Truncated {
		f.say(fmt.Sprintf("The message above is cut; it has %d bytes.", m.BodyBytes))
	}
}
