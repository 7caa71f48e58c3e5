package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// mostWhy bounds the reason of a denial, as for calls.
const mostWhy = 400

// heldMail are the messages that are held, as calls that wait are shown and decided.
type heldMail struct{ d *Daemon }

// heldMessage is one message with all recipients for whom it is held.
type heldMessage struct {
	agent.Letter
	to []string
	n  uint64
}

// shownMessage is what the operator is shown of a message in place of arguments.
type shownMessage struct {
	MessageID string   `json:"message_id"`
	From      string   `json:"from"`
	To        []string `json:"to"`
	Kind      string   `json:"kind"`
	Bytes     int      `json:"body_bytes"`
	SHA256    string   `json:"body_sha256"`
}

// all are the held messages with their numbers.
func (h heldMail) all(ctx context.Context) ([]heldMessage, error) {
	m := h.d.messaging.Load()
	if m == nil {
		return nil, nil
	}
	letters, err := m.server.Operator().Waiting(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading held messages: %w", err)
	}
	var out []heldMessage
	var keys []string
	for _, l := range letters {
		if i := slices.Index(keys, l.MessageID); i >= 0 {
			out[i].to = append(out[i].to, l.To)
			continue
		}
		out, keys = append(out, heldMessage{Letter: l, to: []string{l.To}}), append(keys, l.MessageID)
	}
	for i, n := range h.d.approvals.Number(keys) {
		out[i].n = n
	}
	return out, nil
}

// pending are the held messages among what waits. Without the store there are none to be
// seen, and none can be decided.
func (h heldMail) pending(ctx context.Context) []admin.PendingCall {
	all, err := h.all(ctx)
	if err != nil {
		h.d.log.Warn("held messages could not be listed", "err", err)
	}
	var out []admin.PendingCall
	for _, m := range all {
		c, err := m.shown()
		if err != nil {
			h.d.log.Error("a held message could not be shown", "message", m.MessageID, "err", err)
			continue
		}
		out = append(out, c)
	}
	return out
}

// shown is a message as the operator is shown it: without its text, which is read by an
// act of its own.
func (m heldMessage) shown() (c admin.PendingCall, err error) {
	args, err := json.Marshal(shownMessage{m.MessageID, m.From.Name, m.to, m.Kind, m.BodyBytes, m.BodySHA256})
	if err != nil {
		return c, fmt.Errorf("encoding a held message: %w", err)
	}
	c = admin.PendingCall{N: m.n, Time: m.SentAt, Client: m.From.Name, Principal: m.From.Principal, Server: agent.ServerName, Tool: "message",
		Action: policy.AgentDeliver, Args: args, Expires: m.ExpiresAt, Rule: "agent hold", Reason: heldFor(m.Reason),
		Notes: []string{"its text: doorward agent inbox " + m.To + " --bodies"}}
	sum := sha256.Sum256(fmt.Appendf(args, "%d %s %s", m.n, m.From.Principal, m.Reason))
	c.Preview = hex.EncodeToString(sum[:])
	return c, nil
}

// heldFor is why a message is held.
func heldFor(reason string) string {
	switch reason {
	case "policy":
		return "policy lets the message be sent, and not be delivered at once"
	case "paused":
		return "the recipient is paused"
	case "inbound":
		return "the recipient has its messages held"
	}
	return reason
}

// settle decides the message of a number. false: the number is none of a message's.
func (h heldMail) settle(ctx context.Context, who *principal.Principal, n uint64, s admin.Settlement) (bool, error) {
	all, err := h.all(ctx)
	i := slices.IndexFunc(all, func(m heldMessage) bool { return m.n == n })
	if err != nil || i < 0 {
		return false, err
	}
	c, err := all[i].shown()
	switch {
	case err != nil:
		return true, err
	case s.Preview != "" && s.Preview != c.Preview:
		return true, approval.ErrSettled
	case s.For != "" && s.For != approval.Once, len(s.Why) > mostWhy:
		return true, approval.ErrVerdict
	}
	err = h.d.messaging.Load().server.Operator().Decide(ctx, who, all[i].MessageID, s.Decision == "approve", s.Why)
	var refused *mail.Error
	if errors.As(err, &refused) && refused.Code == mail.UnknownMessage {
		return true, approval.ErrSettled
	}
	return true, err
}
