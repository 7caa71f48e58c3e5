package agent

import (
	"context"
	"fmt"

	"github.com/doorward/doorward/internal/messaging/mail"
)

type ackOut struct {
	Acked   int      `json:"acked"`
	Already int      `json:"already"`
	Unknown []string `json:"unknown"`
}

// ack acknowledges or rejects single messages.
func ack(ctx context.Context, c *call) (*answer, error) {
	note, err := line(c.args.str("note", ""))
	if err != nil {
		return nil, err
	}
	rejected := c.args.str("outcome", "done") == "rejected"
	done, err := c.s.o.Book.Ack(ctx, c.owner, c.args.strs("message_ids"), rejected, note, func(v *mail.Confirmed) any {
		fields := append(peerFields(v.Peer), field("outcome", c.args.str("outcome", "done")), number("confirmed", int64(v.Acked)),
			number("already", int64(v.Already)), number("unknown", int64(len(v.Unknown))))
		return c.line(append(fields, idFields("messages", v.IDs)...)...)
	})
	if err != nil {
		return nil, err
	}
	c.as(done.Peer)
	out := ackOut{Acked: done.Acked, Already: done.Already, Unknown: done.Unknown}
	if out.Unknown == nil {
		out.Unknown = []string{}
	}
	word := "confirmed"
	if rejected {
		word = "rejected"
	}
	return &answer{text: fmt.Sprintf("%s %s, %d before, %d not yours or not known.", messages(out.Acked), word, out.Already, len(out.Unknown)), out: out}, nil
}

type statusOut struct {
	Deliveries []statusDelivery `json:"deliveries"`
}

type statusDelivery struct {
	To        string `json:"to"`
	State     string `json:"state"`
	Attempts  int    `json:"attempts"`
	ChangedAt string `json:"changed_at"`
	GivenAt   string `json:"given_at,omitempty"`
	AckedAt   string `json:"acked_at,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Note      string `json:"note,omitempty"`
}

// messageStatus returns the state of a message that the caller has sent.
func messageStatus(ctx context.Context, c *call) (*answer, error) {
	if _, err := c.me(ctx); err != nil {
		return nil, err
	}
	id := c.args.str("message_id", "")
	ds, err := c.s.o.Book.Status(ctx, c.owner, id)
	if err != nil {
		return nil, err
	}
	if err := c.write(field("message", id)); err != nil {
		return nil, err
	}
	out := statusOut{Deliveries: []statusDelivery{}}
	f := newFence()
	f.open("status", "message", id)
	for _, d := range ds {
		out.Deliveries = append(out.Deliveries, statusDelivery{To: d.To, State: d.State, Attempts: d.Attempts, ChangedAt: stamp(d.ChangedAt),
			GivenAt: stampOr(d.GivenAt), AckedAt: stampOr(d.AckedAt), Reason: broken(d.Reason), Note: broken(d.Note)})
		f.say(fmt.Sprintf("%s: %s, given %d times, since %s", token(d.To), d.State, d.Attempts, stamp(d.ChangedAt)))
		f.labelled("reason", d.Reason)
		if d.Note != "" {
			f.data(d.Note)
		}
	}
	f.close("status")
	return &answer{text: f.String(), out: out}, nil
}
