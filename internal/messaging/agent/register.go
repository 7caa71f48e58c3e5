package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

type registerOut struct {
	PeerID    string         `json:"peer_id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Epoch     int64          `json:"epoch"`
	Principal string         `json:"principal"`
	Grade     string         `json:"grade"`
	LeaseS    int            `json:"lease_s"`
	Cursor    string         `json:"cursor"`
	Pending   int            `json:"pending"`
	Held      int            `json:"held"`
	Missed    missedOut      `json:"missed"`
	Created   bool           `json:"created"`
	Takeover  *takeoverOut   `json:"takeover,omitempty"`
	Push      pushOut        `json:"push"`
	Limits    map[string]int `json:"limits"`
	InboxURI  string         `json:"inbox_uri"`
}

type takeoverOut struct {
	PrevEpoch int64 `json:"prev_epoch"`
	Inherited int   `json:"inherited"`
	Held      int   `json:"held"`
}

type pushOut struct {
	Subscribe bool `json:"subscribe"`
	Listen    bool `json:"listen"`
	Channel   bool `json:"channel"`
	Hook      bool `json:"hook"`
}

// register binds a name to the caller's session. It gives the book the sessions that are
// known to have ended, so that a new session after a crash need not wait for the lease of
// the old one.
func register(ctx context.Context, c *call) (*answer, error) {
	r, err := c.registration()
	if err != nil {
		return nil, err
	}
	done, err := c.s.o.Book.Register(ctx, c.owner, r, c.s.sessions.dead(), func(v *mail.Registered) any {
		return c.line(registerFields(v)...)
	})
	if err != nil {
		return nil, err
	}
	registers(c.s.sessions, c.session)
	c.as(done.Peer)
	if c.former == "" || done.Takeover != nil {
		c.s.sessions.moveTo(c.session, nil) // the caller may not have seen what was given before
	}
	return c.registered(done), nil
}

func registerFields(v *mail.Registered) []audit.Field {
	fields := append(peerFields(v.Peer), field("name", v.Peer.Name), field("namespace", v.Peer.Namespace))
	switch {
	case v.Created:
		fields = append(fields, field("created", "true"))
	case v.Takeover != nil:
		fields = append(fields, number("takeover_from_epoch", v.Takeover.PrevEpoch), number("inherited", int64(v.Takeover.Inherited)))
	case v.Renamed != "":
		fields = append(fields, field("renamed_from", v.Renamed))
	}
	return fields
}

// registration returns what the arguments ask for, cleaned.
func (c *call) registration() (r mail.Registration, err error) {
	a := c.args
	r = mail.Registration{Former: c.former, Name: a.str("name", ""), Namespace: a.str("namespace", c.namespace), Inbound: a.str("inbound", ""),
		SetDisplay: a.has("display"), SetSummary: a.has("summary"), SetInbound: a.has("inbound"), SetLabels: a.has("labels")}
	if r.Display, err = line(a.str("display", "")); err != nil {
		return r, err
	}
	if r.Summary, err = line(a.str("summary", "")); err != nil {
		return r, err
	}
	r.Labels = make(map[string]string)
	for name, v := range a.obj("labels") {
		text, _ := v.(string)
		if !mail.ValidName(name) {
			return r, refusef(mail.InvalidArgument, "a label is not a name")
		}
		if r.Labels[name], err = line(text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// line cleans one line of the caller's text.
func line(s string) (string, error) {
	clean, _, err := CleanLine(s)
	if err != nil {
		return "", &problem{code: InvalidBody, err: err}
	}
	return clean, nil
}

func (c *call) registered(v *mail.Registered) *answer {
	out := registerOut{PeerID: v.Peer.ID, Name: v.Peer.Name, Namespace: v.Peer.Namespace, Epoch: v.Peer.Epoch,
		Principal: shortPrincipal(v.Peer.Principal, c.s.o.Node), Grade: c.owner.Grade, LeaseS: c.s.settings.leaseSeconds(),
		Cursor: c.s.cursors.cursor(receiptOf(v.Counts, v.Peer), c.owner.Session), Pending: v.Counts.Pending, Held: v.Counts.Held,
		Missed: missedOut(v.Counts.Missed), Created: v.Created, Limits: c.s.settings.limits(), InboxURI: inboxURI}
	modern := c.pass.Act().Session == ""
	out.Push = pushOut{Subscribe: !modern, Listen: modern, Hook: c.s.sessions.wake(v.Peer.ID, true) == wakeHook}
	text := fmt.Sprintf("You are %s in %s (peer_id %s, epoch %d). %s waiting, %d held.", token(out.Name), token(out.Namespace),
		out.PeerID, out.Epoch, messages(out.Pending), out.Held)
	if v.Takeover != nil {
		out.Takeover = &takeoverOut{PrevEpoch: v.Takeover.PrevEpoch, Inherited: v.Takeover.Inherited, Held: v.Takeover.Held}
		text += fmt.Sprintf(" You took over from an earlier session of yours that has ended, with %s.", messages(v.Takeover.Inherited))
	}
	return &answer{text: text + "\nNext: inbox with wait_ms=25000.", out: out}
}

func (s *settings) leaseSeconds() int {
	return int(cmp.Or(s.o.Mail.Session, 90*time.Second).Seconds())
}

// ttl is how long a message lives when its sender does not say.
func (s *settings) ttl() time.Duration { return cmp.Or(s.o.Mail.TTL, 24*time.Hour) }

// limits returns the limits that a caller may want to know.
func (s *settings) limits() map[string]int {
	return map[string]int{"message_bytes": s.o.Limits.MessageBytes, "recipients": cmp.Or(s.o.Mail.Recipients, 16),
		"sends_per_minute": s.o.Limits.SendsPerMinute, "burst": s.o.Limits.Burst, "registers_per_minute": s.o.Limits.RegistersPerMinute, "wait_ms": int(s.o.Limits.WaitCap.Milliseconds()),
		"waiting_calls": maxWaiting, "mailbox_messages": cmp.Or(s.o.Mail.MailboxMessages, 1000), "from_one_sender": cmp.Or(s.o.Mail.SenderMessages, 100),
		"inbox_messages": 50, "inbox_bytes": 131072, "ttl_s": int(s.ttl().Seconds())}
}

type unregisterOut struct {
	Released bool `json:"released"`
	Pending  int  `json:"pending"`
}

// unregister releases the caller's name.
func unregister(ctx context.Context, c *call) (*answer, error) {
	done, err := c.s.o.Book.Unregister(ctx, c.owner, func(v *mail.Released) any {
		return c.line(append(peerFields(v.Peer), field("released", fmt.Sprint(v.Released)), number("expired", int64(v.Pending)))...)
	})
	if err != nil {
		return nil, err
	}
	c.s.bind(c.session, mail.Peer{})
	text := "There was no name to give back."
	if done.Released {
		text = fmt.Sprintf("The name is given back; %s expired, and the senders are told.", messages(done.Pending))
	}
	return &answer{text: text, out: unregisterOut{done.Released, done.Pending}}, nil
}
