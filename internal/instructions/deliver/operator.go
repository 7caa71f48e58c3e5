package deliver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Caller is the caller of an operator's command.
type Caller struct {
	Who *principal.Principal
	// Processes are the process instances of the caller and of all its ancestors, nearest
	// first. Complete: the chain was read to its end.
	Processes []string
	Complete  bool
}

// Operator is the operator's side of instruction delivery. Every method passes the gate
// as action `admin`, then the check for an agent's shell, before it reads or changes
// anything, and leaves exactly one audit record, before its effect; only RevokeSession
// may make it afterwards. The record names documents, versions and sessions, never a
// text, a token or a ref. Errors: *gate.Refusal, ErrShell, those of library and session,
// and those of malformed input.
//
// It works without a running daemon, except for sessions: Options.Shelf, Gate and Shell
// are enough.
type Operator struct {
	o Options
	s *Server
}

// Operator returns the functions of `doorward instructions` and `doorward auth token`.
func (s *Server) Operator() *Operator {
	o := s.o
	if s.storage.late != nil {
		if st := s.storage.late.there.Load(); st != nil {
			o.Shelf = st.Shelf
		}
	}
	return &Operator{o, s}
}

// command is one act of the operator during its execution.
type command struct {
	o    *Operator
	by   Caller
	pass gate.Pass
	// unsure: it could not be determined whether an agent is above the caller, and the
	// caller was admitted all the same. The record states it.
	unsure bool
}

// enter takes a command through the gate. It refuses the shell of an agent, and every
// caller while there is no store. The command must be ended by fail, end or done.
func (o *Operator) enter(ctx context.Context, by Caller, what string) (*command, error) {
	return o.enterBy(what, by, func(*command) error { return o.shell(ctx, by) })
}

// askTime bounds each wait for the database in commands that go on without its answer.
const askTime = 2 * time.Second

// enterRestricting is enter for commands that take rights away and grant none. They must
// work while the database is unavailable, so the daemon's own user is then admitted with
// an unknown ancestry. A caller that hangs up does not make its ancestry unknown.
func (o *Operator) enterRestricting(ctx context.Context, by Caller, what string) (*command, error) {
	return o.enterBy(what, by, func(c *command) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		err := o.shell(ctx, by)
		if errors.Is(err, ErrStore) && o.o.Own != nil && o.o.Own(by.Who) {
			c.unsure = true
			return nil
		}
		return err
	})
}

func (o *Operator) enterBy(what string, by Caller, shell func(*command) error) (*command, error) {
	pass, err := o.o.Gate.Enter(gate.Act{Who: by.Who, Action: policy.ActionAdmin, Name: ServerName + "/" + what, Kind: gate.Administration, Source: source}.Deferred())
	if err != nil {
		return nil, err
	}
	c := &command{o: o, by: by, pass: pass}
	err = shell(c)
	if err == nil && o.o.Shelf == nil {
		err = ErrStore
	}
	if err != nil {
		return nil, c.fail(err)
	}
	return c, nil
}

// said returns the fields of a command's record, with a note if the caller's ancestry is
// unknown.
func (c *command) said(fields []audit.Field) []audit.Field {
	if c.unsure {
		fields = append(fields, field("agent_above", whyUnknown))
	}
	return fields
}

// shell refuses a caller below an agent. It refuses an unknown ancestry too, with
// ErrStore where the database is the reason.
func (o *Operator) shell(ctx context.Context, by Caller) error {
	if o.o.Shell == nil {
		return &shellError{whyUnknown, errors.New("the list of agents is not available")}
	}
	err := o.o.Shell(ctx, by.Processes, by.Complete)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStore):
		return err
	case by.Complete && !errors.Is(err, context.Canceled):
		return &shellError{whyAgent, err}
	}
	return &shellError{whyUnknown, err}
}

// fail records that a command was refused after it was admitted, gives its pass back, and
// returns the reason.
func (c *command) fail(why error, fields ...audit.Field) error {
	defer c.end()
	if refusal := c.pass.Refuse(rulePrefix+ruleWord(why), gate.CodeDenied, fields...); refusal.Err != nil {
		return unrecorded(c.pass, refusal.Err)
	}
	return why
}

// ruleWord returns the code of a refusal, as its caller gets it.
func ruleWord(why error) string {
	p, _ := problemOf(why)
	return p.Code
}

func (c *command) end() { c.pass.Leave("ok", 0) }

// done records a command that changes nothing, before its caller gets the result, and
// gives its pass back.
func (c *command) done(fields ...audit.Field) error {
	defer c.end()
	return c.write(fields...)
}

func (c *command) write(fields ...audit.Field) error {
	if _, err := c.pass.Record(fields...); err != nil {
		return unrecorded(c.pass, err)
	}
	return nil
}

// note returns the record of a change of a document's labels.
func (c *command) note(a *library.Act) any { return c.pass.Line(actFields(a)...) }

// Entered returns the record of a file that was added to the instruction directory, with
// the label that it moved by itself, for library.Options.
func Entered(a *library.Act) any {
	return &audit.Record{Kind: audit.Event, Source: source, Action: ServerName + "." + a.Op, Resource: ServerName + "/" + a.Name, Detail: actFields(a)}
}

func actFields(a *library.Act) []audit.Field {
	fields := []audit.Field{field("name", a.Name)}
	for _, f := range []audit.Field{field("version", a.Version), field("label", a.Label)} {
		if f.Value != "" {
			fields = append(fields, f)
		}
	}
	var moves []string
	for _, m := range a.Moves {
		moves = append(moves, m.Variant+":"+short(m.From)+">"+short(m.To))
	}
	return append(fields, list("moves", moves)...)
}

// short returns the abbreviation of a version for display.
func short(version string) string { return version[:min(len(version), 12)] }

// moved ends a command that moves labels.
func (c *command) moved(a *library.Act, err error) (*library.Act, error) {
	if err != nil {
		return nil, c.fail(err)
	}
	c.end()
	if a.Moves == nil {
		a.Moves = []library.Move{}
	}
	return a, nil
}

// Malformed records a malformed request of the operator, so that every request is
// recorded. It returns why, or the gate's refusal.
func (o *Operator) Malformed(ctx context.Context, by Caller, why error) error {
	c, err := o.enter(ctx, by, "malformed")
	if err != nil {
		return err
	}
	return c.fail(why)
}

// clean returns a name or a version that is safe in a record; "?" if it is not.
func clean(s string) string {
	if len(s) > 64 || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "?"
	}
	return s
}
