package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// verb is one tool: what it needs, and what it does.
type verb struct {
	name        string
	action      string // of the policy, asked before do
	pace        pacing // asked before the arguments are looked at
	hints       string // of its annotations
	description string
	do          func(ctx context.Context, c *call) (*answer, error)

	schemas
}

const (
	actionRead  = "agent.read" // the right to one's own mailbox
	actionSpawn = "agent.spawn"
)

// call is one call of a verb on its way through the checks.
type call struct {
	s       *Server
	verb    *verb
	pass    gate.Pass
	session *session
	owner   mail.Owner
	args    args
	raw     []byte // the arguments as they came

	namespace string // claimed by the caller's shim; may be empty
	progress  func(n int)
	details   []audit.Field // what is known so far, for a refusal
	recorded  bool          // what it has done so far is
	asked     policy.Ask    // why it waits for the operator; its zero value: it does not

	addressing addressing
	starting   starting
}

// addressing is a call that names other peers: who may be seen, and who is meant.
type addressing struct{ *call }

// starting is a call that starts an agent, or asks about one that it started.
type starting struct{ *call }

// line is the record of what the call is about to have done: in a transaction
// of the book, in front of its commit.
func (c *call) line(fields ...audit.Field) any {
	return c.pass.Line(slices.Concat(c.details, fields)...)
}

// write records a call that changes nothing.
func (c *call) write(fields ...audit.Field) error {
	if _, err := c.pass.Record(slices.Concat(c.details, fields)...); err != nil {
		return &problem{code: mail.AuditUnavailable, err: err}
	}
	return nil
}

// as notes which peer the caller is, for the record and for those who wake it.
func (c *call) as(p mail.Peer) {
	if p.ID != "" && c.s.sessions.bind(c.session, p) {
		c.s.signals.signal(topicSession(c.owner.Session))
	}
}

// me is the caller's peer.
func (c *call) me(ctx context.Context) (mail.Peer, error) {
	return c.known(c.s.o.Book.Me(ctx, c.owner))
}

// known notes what the book has said about the caller's peer.
func (c *call) known(p mail.Peer, err error) (mail.Peer, error) {
	if noPeer(err) {
		c.s.sessions.bind(c.session, mail.Peer{})
	}
	if err != nil {
		return p, err
	}
	c.as(p)
	c.details = append(c.details, peerFields(p)...)
	return p, nil
}

// noPeer: the session has none, or has lost it.
func noPeer(err error) bool {
	return isRefusal(err, mail.NotRegistered) || isRefusal(err, mail.Fenced)
}

// ask puts a question about the caller to the policy, with an addressee where
// there is one; without, rules about addressees take no part. It leaves no
// record: that is the call's. Acts other than send and spawn cannot wait for the
// operator, so policy denies what it would have held.
func (c *call) ask(action string, to *addressee) policy.Decision {
	q := policy.Request{Who: c.pass.Act().Who, Action: action, Confirmed: c.pass.Act().Confirmed, Listing: to == nil && policy.HasArguments(action)}
	q.Holds = c.pass.Act().Holds && (action == policy.AgentSend || action == actionSpawn)
	if to != nil {
		q.Args = to.args()
	}
	return c.s.o.Gate.Allows(q)
}

// isRefusal reports that err is the book's refusal with that code.
func isRefusal(err error, code string) bool {
	var e *mail.Error
	return errors.As(err, &e) && e.Code == code
}

// withBodies is an answer that holds texts of peers, in the form that the caller
// wants: bodies stand in it once.
func (c *call) withBodies(text string, n int, out any) *answer {
	if c.args.str("format", "text") == "json" {
		return &answer{text: messages(n) + ", in structuredContent.", out: out}
	}
	return &answer{text: text, out: out, bare: true}
}
