package agent

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Waiting returns the held messages, without their texts, for the list of everything that
// waits for the operator. The caller has passed the gate for that list.
func (o *Operator) Waiting(ctx context.Context) ([]Message, error) {
	es, err := o.s.o.Book.Desk().Holds(ctx)
	if err != nil {
		return nil, err
	}
	held := slices.DeleteFunc(es, func(e mail.Envelope) bool { return e.State != mail.Held })
	return o.s.envelopes.messages(held, false), nil
}

// OnHeld calls look at once, and again whenever a message is held or a peer changes, until ctx
// ends. After a look that returned false it looks again soon, without a change.
func (o *Operator) OnHeld(ctx context.Context, look func() (done bool)) {
	wake, leave := o.s.signals.join(mail.TopicHeld, mail.TopicPeers) // held messages of a peer may get another owner
	defer leave()
	for ctx.Err() == nil {
		again := o.s.minGap
		if look() {
			again = 0
		}
		pause(ctx, wake, again)
	}
}

// Decision is the operator's decision about a held message. Preview is the digest of what
// was shown; Passkey is the key that signed it, empty: none.
type Decision struct {
	MessageID, Preview, Passkey string
	Approve                     bool
	Mailboxes                   []string // peer ids of the mailboxes that an approval covers; nil: all
	Why                         string   // told to the sender of a refused message
}

// Decide lets a held message through, or refuses it and tells its sender why, as an act
// of action approve. The caller has verified that the operator decides, as for a held
// call.
func (o *Operator) Decide(ctx context.Context, who *principal.Principal, d Decision) error {
	what, do := HoldApprove, approvedWith(o.s.o.Book, d.Passkey, d.Mailboxes)
	if !d.Approve {
		what, do = HoldRefuse, rejectedFor(o.s.o.Book, plaintext.Line(d.Why))
	}
	shown := []audit.Field{field("preview", d.Preview)}
	if d.Passkey != "" {
		shown = append(shown, field("passkey", d.Passkey))
	}
	pass, err := o.s.o.Gate.Enter(gate.Act{Who: who, Action: policy.ActionApprove, Name: ServerName + "/hold/" + what,
		Kind: gate.Administration, Source: source}.Deferred())
	if err != nil {
		return err
	}
	o.s.human.came()
	_, err = (&act{s: o.s, pass: pass}).settle(ctx, d.MessageID, do, shown...)
	return err
}
