package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// ErrAgentShell refuses an operator's command that came from below a registered agent, or
// from a process whose ancestors cannot all be read: an agent's shell must not act as the
// operator.
var ErrAgentShell = errors.New("AGENT_SHELL")

// Caller is the caller of an operator's command.
type Caller struct {
	Who *principal.Principal
	// Processes are the process instances of the caller and of all its ancestors, in the
	// form of peer.Credentials.Instance. Complete: the chain was read to its end.
	Processes []string
	Complete  bool
	// Continues means that the act continues a recorded one, such as the refresh of a page:
	// Peers, Holds and Tail are then decided and not recorded again.
	Continues bool
}

// Operator is the operator's side of messaging. Every method except Waiting, OnHeld,
// Decide and AgentShell passes the gate as action `admin`, then the check for an agent's
// shell, before it reads or changes anything, and leaves an audit record; see
// Caller.Continues for the exception. Errors:
// *gate.Refusal, ErrAgentShell, *mail.Error.
type Operator struct{ s *Server }

// Operator returns the functions of `doorward agent`.
func (s *Server) Operator() *Operator { return &Operator{s} }

// PeerInfo is one peer as the operator sees it.
type PeerInfo struct {
	PeerID     string            `json:"peer_id"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Principal  string            `json:"principal"` // without the node
	Node       string            `json:"node"`
	Grade      string            `json:"grade"`
	Epoch      int64             `json:"epoch"`
	Presence   string            `json:"presence"` // awake, asleep or gone
	Paused     bool              `json:"paused,omitempty"`
	LastSeen   string            `json:"last_seen,omitempty"`
	LeaseUntil string            `json:"lease_until,omitempty"`
	Display    string            `json:"display,omitempty"`
	Summary    string            `json:"summary,omitempty"`
	Inbound    string            `json:"inbound"`
	Labels     map[string]string `json:"labels,omitempty"`
	Spawn      string            `json:"spawn,omitempty"`
	Ancestors  []string          `json:"ancestors,omitempty"` // the peers above it, its parent first
	Wake       string            `json:"wake"`
	Pending    int               `json:"pending"`
	Held       int               `json:"held"`
}

// Message is one message as the operator sees it. Subject, Body and Note are
// filled in only where bodies were asked for.
type Message struct {
	MessageID  string `json:"message_id"`
	ThreadID   string `json:"thread_id"`
	ReplyTo    string `json:"reply_to,omitempty"`
	Seq        int64  `json:"seq,omitempty"`
	To         string `json:"to"`
	PeerID     string `json:"peer_id"`
	Principal  string `json:"principal"` // the owner of the mailbox
	State      string `json:"state"`
	Kind       string `json:"kind"`
	Authority  string `json:"authority"`
	From       Sender `json:"from"`
	BodyBytes  int    `json:"body_bytes"`
	BodySHA256 string `json:"body_sha256"`
	SentAt     string `json:"sent_at"`
	ExpiresAt  string `json:"expires_at,omitempty"`
	ChangedAt  string `json:"changed_at,omitempty"`
	Attempt    int    `json:"attempt"`
	Reason     string `json:"reason,omitempty"`

	Subject string `json:"subject,omitempty"`
	Body    string `json:"body,omitempty"`
	Note    string `json:"note,omitempty"`

	// Signature is valid, invalid, foreign (another node's) or none.
	Signature string `json:"signature"`
}

// Sender is the sender of a message, as the daemon knew it at the time of
// sending.
type Sender struct {
	PeerID    string `json:"peer_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Principal string `json:"principal"`
	Node      string `json:"node,omitempty"`
	Grade     string `json:"grade"`
	Epoch     int64  `json:"epoch"`
	Lineage   string `json:"lineage"`
}

// Address returns the name with its namespace. A name alone can belong to several agents.
func (s Sender) Address() string { return addressOf(s.Name, s.Namespace, "") }

// OperatorDraft is a message that the operator sends.
type OperatorDraft struct {
	To      string `json:"to"` // name, name@namespace, parent/child or peer id
	Subject string `json:"subject,omitempty"`
	Body    string `json:"body"`
	ReplyTo string `json:"reply_to,omitempty"`
	TTL     int64  `json:"ttl_s,omitempty"`
}

// OperatorSent is the outcome of Send.
type OperatorSent struct {
	MessageID string `json:"message_id"`
	To        string `json:"to"`
	PeerID    string `json:"peer_id"`
	State     string `json:"state"`
	Presence  string `json:"presence"`
	Wake      string `json:"wake"`
	Cleaned   int    `json:"cleaned"`
}

// Inbox holds the messages for the operator or, as metadata, for a peer.
type Inbox struct {
	Messages []Message `json:"messages"`
	Notices  []Notice  `json:"notices,omitempty"`
	Pending  int       `json:"pending"`
	Held     int       `json:"held"`
}

// Notice tells a sender the state of a message.
type Notice struct {
	MessageID string `json:"message_id"`
	To        string `json:"to"`
	State     string `json:"state"`
	At        string `json:"at"`
	Reason    string `json:"reason,omitempty"`
	Note      string `json:"note,omitempty"`
}

// Traced holds all that is stored about one message. Audit holds the sequence numbers of
// this node's records that name it.
type Traced struct {
	Messages []Message     `json:"deliveries"`
	Changes  []mail.Change `json:"changes"`
	Audit    []uint64      `json:"audit"`
}

// Tailed is a page of state changes; After is the position of the next page.
type Tailed struct {
	Changes []mail.Change `json:"changes"`
	After   int64         `json:"after"`
}

// Checked is the outcome of Fsck. Unrecorded holds messages without an audit record of
// this node. Unstored holds recorded messages without a row: their sender never got an
// answer.
type Checked struct {
	mail.Check
	Unrecorded []string `json:"unrecorded,omitempty"`
	Unstored   []string `json:"unstored,omitempty"`
}

// act is one command of the operator during its execution.
type act struct {
	s    *Server
	pass gate.Pass
}

// enter takes a command through the gate, and refuses the shell of an agent. The act must
// be ended by fail, end or done.
func (o *Operator) enter(ctx context.Context, by Caller, what string) (*act, error) {
	pass, err := o.s.o.Gate.Enter(gate.Act{Who: by.Who, Action: policy.ActionAdmin, Name: ServerName + "/" + what,
		Kind: gate.Administration, Source: source}.Deferred())
	if err != nil {
		return nil, err
	}
	a := &act{s: o.s, pass: pass}
	if err := o.AgentShell(ctx, by.Processes, by.Complete); err != nil {
		return nil, a.fail(err)
	}
	o.s.human.came()
	return a, nil
}

// AgentShell returns ErrAgentShell when one of the processes is a registered agent of
// this node, or when complete is false. When the book cannot be read, the agents that
// this daemon knows, present and former, still give ErrAgentShell; otherwise the book's
// error is returned.
func (o *Operator) AgentShell(ctx context.Context, processes []string, complete bool) error {
	if !complete || len(processes) == 0 {
		return ErrAgentShell
	}
	agents, err := o.s.o.Book.Agents(ctx)
	if err != nil && o.s.sessions.agents(processes) {
		return ErrAgentShell
	}
	if err != nil {
		return err
	}
	for _, p := range processes {
		if slices.Contains(agents, p) {
			return ErrAgentShell
		}
	}
	return nil
}

// agents reports whether one of the processes is or was an agent, as far as this table
// knows.
func (t *sessions) agents(processes []string) bool {
	if t.formers.any(processes) {
		return true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.byKey {
		if s.peer != "" && slices.ContainsFunc(s.owner.Processes, func(p string) bool { return slices.Contains(processes, p) }) {
			return true
		}
	}
	return false
}

// fail records that the command was refused after it was admitted, gives its pass back,
// and returns the error for the caller.
func (a *act) fail(err error) error {
	code := "AGENT_SHELL"
	if !errors.Is(err, ErrAgentShell) {
		p := problemOf(err)
		code, err = p.code, &mail.Error{Code: p.code, Retry: p.retry, Err: p.err}
	}
	if refusal := a.pass.Refuse(rulePrefix+code, gate.CodeDenied, field("code", code)); refusal.Err != nil {
		a.s.log.Error("a refusal could not be recorded", "err", refusal.Err)
		err = &mail.Error{Code: mail.AuditUnavailable, Err: refusal.Err}
	}
	a.end()
	return err
}

func (a *act) end() { a.pass.Leave("ok", 0) }

// line returns the record of a change that the command makes.
func (a *act) line(fields ...audit.Field) any { return a.pass.Line(fields...) }

// listed is done for a list without texts, which is not recorded for a caller that continues
// a recorded act.
func (a *act) listed(by Caller, fields ...audit.Field) error {
	if by.Continues {
		a.end()
		return nil
	}
	return a.done(fields...)
}

// done records a command that changed nothing, and gives its pass back.
func (a *act) done(fields ...audit.Field) error {
	if _, err := a.pass.Record(fields...); err != nil {
		a.end()
		return &mail.Error{Code: mail.AuditUnavailable, Err: err}
	}
	a.end()
	return nil
}
