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

// verb is one tool: its checks, its texts and its function.
type verb struct {
	name        string
	action      string // the policy action that is decided before do
	pace        pacing // the limiter that is charged before the arguments are read
	hints       string // the annotations of the tool
	description string
	do          func(ctx context.Context, c *call) (*answer, error)

	schemas
}

const (
	actionRead  = "agent.read" // the right to read one's own mailbox
	actionSpawn = "agent.spawn"
)

// call is one call of a verb during its checks and its execution.
type call struct {
	s       *Server
	verb    *verb
	pass    gate.Pass
	session *session
	owner   mail.Owner
	before  int // calls of register that gave the session a peer before this call
	args    args
	raw     []byte // the arguments as received

	namespace string        // claimed by the caller's shim; may be empty
	former    string        // session that the caller's replaces, claimed; empty: none
	progress  func(n int)   // nil: the client did not ask for it
	details   []audit.Field // the facts known so far, for the record of a refusal
	recorded  bool          // what the call has done so far is recorded
	takes     bool          // any new mail ends the call while it waits
	asked     policy.Ask    // the reason to wait for the operator; zero value: none

	addressing addressing
	starting   starting
}

// addressing holds the methods of calls that name other peers.
type addressing struct{ *call }

// starting holds the methods of calls about agents that the caller starts or has started.
type starting struct{ *call }

// line returns the record of a change that the call makes. The book writes it before it
// commits the change.
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

// as notes the caller's peer, for records and for waking it.
func (c *call) as(p mail.Peer) {
	if p.ID != "" {
		c.s.bind(c.session, p)
	}
}

// me returns the caller's peer.
func (c *call) me(ctx context.Context) (mail.Peer, error) {
	p, err := c.s.o.Book.Me(ctx, c.owner)
	return known(c, p, err)
}

// known notes what the book has said about the caller's peer.
func known(c *call, p mail.Peer, err error) (mail.Peer, error) {
	if noPeer(err) {
		c.s.lose(c.session, c.before)
	}
	if err != nil {
		return p, err
	}
	c.as(p)
	c.details = append(c.details, peerFields(p)...)
	return p, nil
}

// noPeer reports that the session has no peer, or has lost it.
func noPeer(err error) bool {
	return isRefusal(err, mail.NotRegistered) || isRefusal(err, mail.Fenced)
}

// ask asks policy about the caller, with an addressee or none; without one, rules about
// addressees do not apply. It leaves no record, because the call leaves one. Only send
// and spawn can wait for the operator: other acts that policy would hold are denied.
func (c *call) ask(action string, to *addressee) policy.Decision {
	q := policy.Request{Who: c.pass.Act().Who, Action: action, SameProgram: c.pass.Act().SameProgram, Listing: to == nil && policy.HasArguments(action)}
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

// withBodies returns an answer with texts of peers, in the form that the caller asked
// for. The bodies are in it once.
func (c *call) withBodies(text string, n int, out any) *answer {
	if c.args.str("format", "text") == "json" {
		return &answer{text: messages(n) + ", in structuredContent.", out: out}
	}
	return &answer{text: text, out: out, bare: true}
}
