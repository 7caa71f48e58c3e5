package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// mostWhy bounds the reason of a denial, as for calls.
const mostWhy = 400

// heldMail lists and decides the held messages in the form of held calls.
type heldMail struct{ d *Daemon }

// heldMessage is one message with all recipients for whom it is held.
type heldMessage struct {
	agent.Message
	to []addressee
}

// addressee is a recipient with the mailbox that the message would go to, and the principal
// that owns it now.
type addressee struct {
	Address   string `json:"address"`
	PeerID    string `json:"peer_id"`
	Principal string `json:"principal"`
}

// shownMessage is shown to the operator in place of arguments.
type shownMessage struct {
	MessageID  string      `json:"message_id"`
	From       string      `json:"from"`
	Recipients []addressee `json:"recipients"`
	Kind       string      `json:"kind"`
	Bytes      int         `json:"body_bytes"`
	SHA256     string      `json:"body_sha256"`
}

// all returns the held messages in the form that is shown to the operator. A message that could
// not be given a number has number 0, with the reason among its notes.
func (h heldMail) all(ctx context.Context) ([]approval.Question, error) {
	m := h.d.messaging.Load()
	if m == nil {
		return nil, nil
	}
	held, err := m.server.Operator().Waiting(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading held messages: %w", err)
	}
	var all []heldMessage
	var keys []string
	for _, l := range held {
		i := slices.Index(keys, l.MessageID)
		if i < 0 {
			i = len(all)
			all, keys = append(all, heldMessage{Message: l}), append(keys, l.MessageID)
		}
		all[i].to = append(all[i].to, addressee{l.To, l.PeerID, l.Principal})
	}
	for i := range all {
		keys[i] += fmt.Sprint(all[i].to) // for other recipients the message has another number
	}
	numbers, unnumbered := h.d.approvals.Number(keys)
	if unnumbered != nil {
		h.d.log.Warn("a held message has no number", "err", unnumbered)
	}
	var out []approval.Question
	for i, n := range numbers {
		q, err := all[i].shown(n, h.d.o.Config.Agent.Hold)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			q.Notes = append(q.Notes, fmt.Sprintf("it has no number and cannot be decided by one: %v; doorward agent hold decides it as %s", unnumbered, q.Message))
		}
		out = append(out, q)
	}
	return out, nil
}

// watch notifies the operator of each message that is held from now on, until end is called.
// It returns after the first look, so that no message sent later is taken for an earlier run's.
func (h heldMail) watch(o *agent.Operator) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	known, _ := h.tell(ctx, nil)
	var watch sync.WaitGroup
	watch.Go(func() {
		o.OnHeld(ctx, func() (done bool) {
			known, done = h.tell(ctx, known)
			return done
		})
	})
	return func() { stop(); watch.Wait() }
}

// tell notifies the operator of the held messages whose numbers are not in known, and returns
// the new set. If known is nil, it is the first look, and an earlier run has notified of the
// present ones. It is not done if the messages could not be read, or one has no number yet.
func (h heldMail) tell(ctx context.Context, known map[uint64]bool) (now map[uint64]bool, done bool) {
	all, err := h.all(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.d.log.Warn("the operator was not told of a held message", "err", err)
		}
		return known, false
	}
	now, done = make(map[uint64]bool, len(all)), true
	for _, q := range all {
		if q.N == 0 { // without a number it is told later
			done = false
			continue
		}
		if known != nil && !known[q.N] {
			h.d.approvals.Tell(q)
		}
		now[q.N] = true
	}
	return now, done
}

// shown returns the message in the form that is shown to the operator. It lacks the text,
// which is read by a separate act. hold is how long it waits for the operator at most.
func (m heldMessage) shown(n uint64, hold time.Duration) (q approval.Question, err error) {
	args, err := json.Marshal(shownMessage{m.MessageID, m.From.Address(), m.to, m.Kind, m.BodyBytes, m.BodySHA256})
	if err != nil {
		return q, fmt.Errorf("encoding a held message: %w", err)
	}
	q = approval.Question{N: n, Time: timeOf(m.SentAt), Expires: timeOf(m.ExpiresAt), Client: m.From.Address(), Principal: m.From.Principal, Server: agent.ServerName,
		Tool: "message", Action: policy.AgentDeliver, Args: string(args), Rule: "agent hold", Reason: heldFor(m.Reason),
		Notes: []string{"its text: doorward agent inbox " + m.PeerID + " --bodies"}, Message: m.MessageID}
	if end := timeOf(m.ChangedAt).Add(hold); end.Before(q.Expires) {
		q.Expires = end
	}
	q.Preview = q.Digest()
	return q, nil
}

// timeOf parses a stamp of messaging; zero: it is not valid.
func timeOf(stamp string) time.Time {
	t, _ := time.Parse(time.RFC3339, stamp)
	return t
}

// heldFor describes why a message is held.
func heldFor(reason string) string {
	switch reason {
	case "policy":
		return "policy permits the message, but not its immediate delivery"
	case "paused":
		return "the recipient is paused"
	case "inbound":
		return "messages to the recipient are held"
	case "hold":
		return "the operator did not decide in time, and the message was sent again"
	}
	return reason
}

// settle decides the message with number n. False means that n is not the number of a
// message.
func (h heldMail) settle(ctx context.Context, who *principal.Principal, n uint64, preview string, v approval.Verdict) (bool, error) {
	all, err := h.all(ctx)
	i := slices.IndexFunc(all, func(q approval.Question) bool { return q.N == n })
	if err != nil || i < 0 || n == 0 {
		return false, err
	}
	switch q := all[i]; {
	case preview != "" && preview != q.Preview:
		return true, approval.ErrSettled
	case v.For != "" && v.For != approval.Once, len(v.Why) > mostWhy:
		return true, approval.ErrVerdict
	}
	boxes, err := mailboxes(all[i])
	if err != nil {
		return true, err
	}
	err = h.d.messaging.Load().server.Operator().Decide(ctx, who, agent.Decision{MessageID: all[i].Message, Preview: all[i].Preview, Passkey: v.Passkey, Approve: v.Approve, Mailboxes: boxes, Why: v.Why})
	var refused *mail.Error
	if errors.As(err, &refused) && refused.Code == mail.UnknownMessage {
		return true, approval.ErrSettled
	}
	return true, err
}

// mailboxes returns the mailboxes that were shown to the operator and that a passkey has
// signed. An approval delivers the message to no other mailbox.
func mailboxes(q approval.Question) ([]string, error) {
	var m shownMessage
	if err := json.Unmarshal([]byte(q.Args), &m); err != nil {
		return nil, fmt.Errorf("reading a held message: %w", err)
	}
	out := []string{}
	for _, r := range m.Recipients {
		out = append(out, r.PeerID)
	}
	return out, nil
}
