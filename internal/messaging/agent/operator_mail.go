package agent

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

// message returns the operator's view of a message; texts: with its texts.
func (s *envelopes) message(e *mail.Envelope, texts bool) Message {
	m := &e.Message
	out := Message{MessageID: m.ID, ThreadID: m.Thread, ReplyTo: m.ReplyTo, Seq: m.Seq, To: e.To, PeerID: e.PeerID, Principal: shortPrincipal(e.Principal, s.o.Node), State: e.State,
		Kind: m.Kind, Authority: m.Authority, BodyBytes: m.BodyBytes, BodySHA256: m.BodySHA256,
		SentAt: stamp(m.SentAt), ExpiresAt: stampOr(m.ExpiresAt), ChangedAt: stampOr(e.ChangedAt), Attempt: m.Attempt, Reason: e.Reason,
		Signature: s.signature(m, e.PeerID)}
	out.From = Sender{PeerID: m.From.PeerID, Name: m.From.Name, Namespace: m.From.Namespace, Principal: shortPrincipal(m.From.Principal, s.o.Node),
		Node: nodeOf(m.From.Principal), Grade: m.From.Grade, Epoch: m.From.Epoch, Lineage: m.From.Lineage}
	if texts {
		out.Subject, out.Body, out.Note = m.Subject, m.Body, e.Note
	}
	return out
}

func (s *envelopes) messages(es []mail.Envelope, texts bool) []Message {
	out := []Message{}
	for i := range es {
		out = append(out, s.message(&es[i], texts))
	}
	return out
}

// Send sends a message with the authority of the operator.
func (o *Operator) Send(ctx context.Context, by Caller, d OperatorDraft) (*OperatorSent, error) {
	a, p, err := o.find(ctx, by, "send", d.To)
	if err != nil {
		return nil, err
	}
	draft, err := o.draft(d)
	if err != nil {
		return nil, a.fail(err)
	}
	draft.To = []mail.Recipient{{To: d.To, PeerID: p.ID, Principal: p.Principal, Lineage: mail.LineageOperator, Authority: mail.AuthorityOperator}}
	var wakes standings
	sent, err := o.s.o.Book.Desk().Send(ctx, draft, func(v *mail.Sent) any {
		wakes = o.s.planned(v)
		return a.line(sendFields(v, draft.Body, wakes, o.s.trail.digest(draft.Body))...)
	})
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	out := &OperatorSent{MessageID: sent.MessageID, To: d.To, PeerID: p.ID, Cleaned: sent.Cleaned}
	for _, x := range sent.Deliveries {
		out.State, out.Presence, out.Wake = x.State, wakes[x.PeerID].presence, wakes[x.PeerID].wake
	}
	return out, nil
}

// draft cleans and checks a message of the operator, as send does.
func (o *Operator) draft(d OperatorDraft) (mail.Draft, error) {
	body, n, err := Clean(d.Body)
	if err != nil || body == "" {
		return mail.Draft{}, &problem{code: InvalidBody, err: err}
	}
	subject, m, err := CleanLine(d.Subject)
	if err != nil {
		return mail.Draft{}, &problem{code: InvalidBody, err: err}
	}
	if len(body) > o.s.o.Limits.MessageBytes || len([]rune(subject)) > 200 {
		return mail.Draft{}, refuse(TooLarge)
	}
	if d.TTL != 0 && (d.TTL < 60 || d.TTL > 604800) {
		return mail.Draft{}, refuse(mail.InvalidArgument)
	}
	return mail.Draft{Body: body, Subject: subject, Kind: "inform", ReplyTo: d.ReplyTo, TTL: d.TTL, Cleaned: n + m}, nil
}

// Inbox returns the operator's own mailbox when peer is empty, and acknowledges it if ack
// is set; otherwise the open messages of that peer. Reading the bodies of a peer is an
// act of its own.
func (o *Operator) Inbox(ctx context.Context, by Caller, peer string, bodies, ack bool) (*Inbox, error) {
	if peer == "" {
		return o.ownInbox(ctx, by, ack)
	}
	what := "inbox"
	if bodies {
		what = "bodies"
	}
	a, p, err := o.find(ctx, by, what, peer)
	if err != nil {
		return nil, err
	}
	es, err := o.s.o.Book.Desk().Mailbox(ctx, p.ID, bodies)
	if err != nil {
		return nil, a.fail(err)
	}
	// The record of shown bodies is written before they are shown.
	if err := a.done(append(peerFields(p), number("listed", int64(len(es))))...); err != nil {
		return nil, err
	}
	out := &Inbox{Messages: o.s.envelopes.messages(es, bodies)}
	for _, e := range es {
		if e.State == mail.Held {
			out.Held++
		} else {
			out.Pending++
		}
	}
	return out, nil
}

func (o *Operator) ownInbox(ctx context.Context, by Caller, ack bool) (*Inbox, error) {
	a, err := o.enter(ctx, by, "inbox")
	if err != nil {
		return nil, err
	}
	b, err := o.s.o.Book.Desk().Inbox(ctx, ack, func(v *mail.Batch) any { return a.line(inboxFields(v)...) })
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	out := &Inbox{Messages: []Message{}, Pending: b.Counts.Pending, Held: b.Counts.Held}
	for i := range b.Messages {
		e := mail.Envelope{Message: b.Messages[i], To: mail.Operator, PeerID: b.Peer.ID, Principal: b.Peer.Principal, State: mail.Leased}
		out.Messages = append(out.Messages, o.s.envelopes.message(&e, true))
	}
	for _, n := range b.Counts.Notices {
		out.Notices = append(out.Notices, Notice{MessageID: n.MessageID, To: n.To, State: n.State, At: stamp(n.At), Reason: n.Reason, Note: n.Note})
	}
	return out, nil
}

// Holds lists the held messages, and the dead or expired ones that can be sent again.
func (o *Operator) Holds(ctx context.Context, by Caller) ([]Message, error) {
	a, err := o.enter(ctx, by, "hold")
	if err != nil {
		return nil, err
	}
	es, err := o.s.o.Book.Desk().Holds(ctx)
	if err != nil {
		return nil, a.fail(err)
	}
	return o.s.envelopes.messages(es, false), a.listed(by, number("listed", int64(len(es))))
}

// The actions of Settle.
const (
	HoldApprove = "approve"
	HoldRefuse  = "refuse"
	HoldRequeue = "requeue"
	HoldPurge   = "purge"
)

// Settle approves, refuses, requeues or purges a message.
func (o *Operator) Settle(ctx context.Context, by Caller, what, messageID string) ([]mail.Settled, error) {
	book := o.s.o.Book
	do, ok := map[string]settling{
		HoldApprove: approvedWith(book, "", nil), HoldRefuse: rejectedFor(book, ""), HoldRequeue: book.Desk().Requeue, HoldPurge: book.Desk().Purge}[what]
	name := "hold/" + what
	if !ok {
		name = "hold"
	}
	a, err := o.enter(ctx, by, name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, a.fail(refuse(mail.InvalidArgument))
	}
	return a.settle(ctx, messageID, do)
}

// settling changes the deliveries of a message.
type settling func(ctx context.Context, messageID string, note mail.Note[mail.Settled]) ([]mail.Settled, error)

func approvedWith(book *mail.Book, passkey string, shown []string) settling {
	return func(ctx context.Context, messageID string, note mail.Note[mail.Settled]) ([]mail.Settled, error) {
		return book.Desk().Approve(ctx, messageID, passkey, shown, note)
	}
}

func rejectedFor(book *mail.Book, why string) settling {
	return func(ctx context.Context, messageID string, note mail.Note[mail.Settled]) ([]mail.Settled, error) {
		return book.Desk().Reject(ctx, messageID, why, note)
	}
}

// settle runs do with its record.
func (a *act) settle(ctx context.Context, messageID string, do settling, more ...audit.Field) ([]mail.Settled, error) {
	done, err := do(ctx, messageID, func(v *mail.Settled) any {
		fields := []audit.Field{field("message", v.MessageID), field("recipients", v.PeerID), field("state", v.State)}
		if v.NewID != "" {
			fields = append(fields, field("new_message", v.NewID))
		}
		return a.line(append(fields, more...)...)
	})
	if err != nil {
		return nil, a.fail(err)
	}
	a.end()
	return done, nil
}

// tailPage is the number of changes in a page of a tail.
const tailPage = 200

// Tail waits at most waitMS for state changes after the position after (-1: from now on)
// of one peer or (empty) of all. The first page of a tail (after -1) is recorded; the
// following pages are the same act and are not.
func (o *Operator) Tail(ctx context.Context, by Caller, peer string, after int64, waitMS int) (*Tailed, error) {
	a, err := o.enter(ctx, by, "tail")
	if err != nil {
		return nil, err
	}
	id := ""
	if peer != "" {
		p, err := o.s.o.Book.Desk().Find(ctx, peer)
		if err != nil {
			return nil, a.fail(err)
		}
		id = p.ID
	}
	limit, _ := o.s.settings.capped(max(waitMS, 0))
	if after < 0 {
		limit = 0
	}
	leave := o.s.human.watches()
	out, err := o.s.changes(ctx, id, after, limit)
	leave()
	if err != nil {
		return nil, a.fail(err)
	}
	if after < 0 {
		return out, a.listed(by, field("peer", id))
	}
	a.end()
	return out, nil
}

// changesEvery is how often a tail reads without a signal: not every change signals a
// topic.
const changesEvery = 2 * time.Second

func (s *Server) changes(ctx context.Context, peer string, after int64, limit time.Duration) (*Tailed, error) {
	wake, leave := s.signals.join(topicAny)
	defer leave()
	for end := time.Now().Add(limit); ; {
		cs, last, err := s.o.Book.Desk().Changes(ctx, peer, after, tailPage)
		left := time.Until(end)
		if err != nil || len(cs) > 0 || left <= 0 || ctx.Err() != nil || s.closing.Err() != nil {
			if cs == nil {
				cs = []mail.Change{}
			}
			return &Tailed{Changes: cs, After: last}, err
		}
		pause(ctx, wake, min(left, changesEvery))
	}
}
