package agent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

type sendOut struct {
	MessageID  string        `json:"message_id"`
	ThreadID   string        `json:"thread_id"`
	Replay     bool          `json:"replay"`
	AcceptedAt string        `json:"accepted_at"`
	Cleaned    int           `json:"cleaned"`
	Deliveries []deliveryOut `json:"deliveries"`
}

type deliveryOut struct {
	To       string `json:"to"`
	PeerID   string `json:"peer_id"`
	Seq      int64  `json:"seq,omitempty"`
	State    string `json:"state"`
	Presence string `json:"presence"`
	Wake     string `json:"wake"`
	Evicted  int    `json:"evicted,omitempty"`
}

// send stores a message for all recipients or for none. The sender is the
// caller's peer; no argument can name another.
func send(ctx context.Context, c *call) (*answer, error) {
	d, err := c.addressing.draft()
	if err != nil {
		return nil, err
	}
	addresses := c.args.strs("to")
	if a, err := recalled(ctx, c, d, addresses); a != nil || err != nil {
		return a, err
	}
	if d.To, err = recipients(ctx, c, addresses); err != nil {
		return nil, err
	}
	if err := hold(c, func() []byte { return addressed(c, d.To) }); err != nil {
		return nil, err
	}
	a, err := stored(ctx, c, d)
	if err != nil {
		return nil, c.addressing.about(c.starting.overBudget(err), d.To)
	}
	return a, nil
}

// stored gives the message to the book, and returns the answer for its sender.
func stored(ctx context.Context, c *call, d mail.Draft) (*answer, error) {
	var wakes standings
	sent, err := c.s.o.Book.Send(ctx, c.owner, d, func(v *mail.Sent) any {
		wakes = c.s.planned(v)
		return c.line(sendFields(v, d.Body, wakes, c.s.trail.digest(d.Body))...)
	})
	if err != nil {
		return nil, err
	}
	return c.addressing.sent(sent, wakes), nil
}

// standings are the standings of the recipients by peer id, and so how each will be told
// of a message. They are read before the commit, because a waiting call may have returned
// by the time of the answer.
type standings map[string]standing

func (s *Server) planned(v *mail.Sent) standings {
	w := make(standings, len(v.Deliveries))
	for _, d := range v.Deliveries {
		w[d.PeerID] = s.standingIn(d)
	}
	return w
}

// about adds the recipients to an error, for the record.
func (c addressing) about(err error, to []mail.Recipient) error {
	p := problemOf(err)
	for _, r := range to {
		p.to = append(p.to, r.PeerID)
	}
	return p
}

// draft returns the message that the arguments ask for, cleaned.
func (c addressing) draft() (d mail.Draft, err error) {
	a := c.args
	d = mail.Draft{Kind: a.str("kind", "inform"), Thread: a.str("thread_id", ""), ReplyTo: a.str("reply_to", ""),
		TTL: int64(a.int("ttl_s", 0)), Key: a.str("idempotency_key", "")}
	if d.Key != "" {
		sum := sha256.Sum256(rawjson.Canonical(c.raw))
		d.Fingerprint = sum[:]
	}
	clean := func(f func(string) (string, int, error), s string) string {
		out, n, e := f(s)
		if e != nil && err == nil {
			err = &problem{code: InvalidBody, err: e}
		}
		d.Cleaned += n
		return out
	}
	d.Body = clean(Clean, a.str("body", ""))
	d.Subject = clean(CleanLine, a.str("subject", ""))
	refs, _ := a["refs"].([]any)
	for _, r := range refs {
		m, _ := r.(map[string]any)
		ref := mail.Ref{URI: clean(CleanLine, args(m).str("uri", "")), SHA256: args(m).str("sha256", ""), Size: int64(args(m).int("size", 0))}
		d.Refs = append(d.Refs, ref)
	}
	if d.Body == "" && err == nil {
		err = refusef(InvalidBody, "nothing is left of the body after cleaning")
	}
	return d, err
}

// recipients resolves the addresses and decides on each of them. One that
// there is not and one that the caller may not know of give the same answer.
func recipients(ctx context.Context, c *call, addresses []string) ([]mail.Recipient, error) {
	me, peers, err := c.s.o.Book.Resolve(ctx, c.owner, addresses)
	if me, err = known(c, me, err); err != nil {
		return nil, err
	}
	return c.addressing.decided(ctx, me, peers, addresses)
}

// decided decides on each of the peers that addresses name.
func (c addressing) decided(ctx context.Context, me mail.Peer, peers []mail.Peer, addresses []string) ([]mail.Recipient, error) {
	if len(addresses) > 1 {
		if d := c.ask("agent.send_multi", nil); !d.Allow {
			return nil, denied(d.Rule)
		}
	}
	var unknown, refuses []string
	var out []mail.Recipient
	var no *problem
	for i, p := range peers {
		to := &addressee{peer: p, me: me}
		if p.Name == "" || !c.sees(to) {
			unknown = append(unknown, addresses[i])
			continue
		}
		if slices.ContainsFunc(out, func(r mail.Recipient) bool { return r.PeerID == p.ID }) {
			return nil, refusef(mail.InvalidArgument, "two of the addresses are the same peer")
		}
		if d := c.ask(policy.AgentSend, to); !d.Allow && no == nil {
			no = denied(d.Rule)
		} else if d.Ask.Rule != "" {
			c.asked = d.Ask
		}
		if p.Inbound == mail.InboundRefuse {
			refuses = append(refuses, addresses[i])
		}
		out = append(out, c.recipient(addresses[i], to))
	}
	switch {
	case len(unknown) > 0:
		return nil, c.unknown(ctx, me, unknown)
	case no != nil:
		return nil, c.about(no, out)
	case len(refuses) > 0:
		return nil, c.about(&problem{code: mail.RecipientRefuses, details: map[string]any{"recipients": refuses}}, out)
	}
	return out, nil
}

// recipient decides whether a message is delivered at once or held. The recipient can
// only be stricter than policy. A message has authority only where a rule of the operator
// gives it.
func (c addressing) recipient(address string, to *addressee) mail.Recipient {
	p := to.peer
	r := mail.Recipient{To: address, PeerID: p.ID, Principal: p.Principal, Lineage: p.Lineage, Authority: mail.AuthorityNone}
	if c.ask(policy.AgentDelegate, to).Allow {
		r.Authority = mail.AuthorityDelegated
	}
	switch {
	case !c.ask(policy.AgentDeliver, to).Allow:
		r.Hold, r.Reason = true, "policy"
	case p.Paused:
		r.Hold, r.Reason = true, "paused"
	case p.Inbound == mail.InboundHold:
		r.Hold, r.Reason = true, "inbound"
	}
	return r
}

// unknown returns the answer for peers that do not exist and for peers that the caller
// may not see.
func (c addressing) unknown(ctx context.Context, me mail.Peer, addresses []string) *problem {
	p := &problem{code: mail.UnknownRecipient, details: map[string]any{"recipients": addresses}}
	if names := c.suggestions(ctx, me, addresses[0]); len(names) > 0 {
		p.details["suggestions"] = names
	}
	return p
}

func sendFields(v *mail.Sent, body string, w standings, digest string) []audit.Field {
	var to, words []string
	held, evicted := 0, 0
	for _, d := range v.Deliveries {
		to, words = append(to, d.PeerID), append(words, w[d.PeerID].wake)
		evicted += d.Evicted
		if d.State == mail.Held {
			held++
		}
	}
	fields := append(peerFields(v.From), field("message", v.MessageID))
	fields = append(fields, idFields("recipients", to)...)
	fields = append(fields, number("size", int64(len(body))), field("wake", strings.Join(words, ",")), field("body_hmac", digest))
	if v.Replay {
		fields = append(fields, field("replay", "true"))
	}
	if v.ConfirmedID != "" {
		fields = append(fields, field("confirmed", v.ConfirmedID))
	}
	if held > 0 {
		fields = append(fields, number("held", int64(held)))
	}
	if evicted > 0 {
		fields = append(fields, number("evicted", int64(evicted)))
	}
	return fields
}

func (c addressing) sent(v *mail.Sent, w standings) *answer {
	out := sendOut{MessageID: v.MessageID, ThreadID: v.Thread, Replay: v.Replay, AcceptedAt: stamp(v.AcceptedAt), Cleaned: v.Cleaned}
	var text strings.Builder
	for _, d := range v.Deliveries {
		at, ok := w[d.PeerID]
		if !ok { // it is the answer of an earlier call
			at = c.s.standingIn(d)
		}
		to := deliveryOut{To: d.To, PeerID: d.PeerID, Seq: d.Seq, State: d.State, Presence: at.presence, Wake: at.wake, Evicted: d.Evicted}
		out.Deliveries = append(out.Deliveries, to)
		text.WriteString(to.text() + "\n")
	}
	fmt.Fprintf(&text, "message_id %s, thread_id %s", out.MessageID, out.ThreadID)
	if v.Replay {
		text.WriteString("; this is the answer of the first call with this idempotency_key, nothing was stored again")
	}
	if v.Cleaned > 0 {
		fmt.Fprintf(&text, "; %d hidden characters were taken out", v.Cleaned)
	}
	return &answer{text: text.String(), out: out, plain: true}
}

// text states what was done with the message, and that it is not delivered yet.
func (d deliveryOut) text() string {
	word := "stored"
	if d.State == mail.Held {
		word = "held until the operator approves it,"
	}
	out := fmt.Sprintf("%s for %s (%s, wake: %s); not delivered yet", word, token(d.To), d.Presence, d.Wake)
	if d.Evicted > 0 {
		out += fmt.Sprintf("; %s removed from its full mailbox to make room", messages(d.Evicted))
	}
	return out
}
