package deliver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
)

// SessionInfo is one session in the operator's view. Times are RFC 3339, or empty.
type SessionInfo struct {
	ID      string   `json:"id"`
	Subject string   `json:"subject"`
	Scope   []string `json:"scope"`
	Project string   `json:"project,omitempty"`
	Client  string   `json:"client,omitempty"`
	CI      bool     `json:"ci"`
	Bind    string   `json:"bind,omitempty"`
	Issued  string   `json:"issued"`
	Expires string   `json:"expires"`
	Ended   string   `json:"ended,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// SessionList holds the known sessions, newest first.
type SessionList struct {
	Sessions []SessionInfo `json:"sessions"`
}

func infoOf(s session.Session) SessionInfo {
	return SessionInfo{ID: s.ID, Subject: s.Subject, Scope: orEmpty(s.Scope), Project: s.Project, Client: s.Client, CI: s.CI, Bind: s.Bind,
		Issued: stamp(s.Issued), Expires: stamp(s.Expires), Ended: stamp(s.Ended), Reason: s.Reason}
}

// Sessions lists the live sessions, and those that ended within 30 days.
func (o *Operator) Sessions(ctx context.Context, by Caller) (*SessionList, error) {
	c, err := needsDaemon(o.enter(ctx, by, "sessions"))
	if err != nil {
		return nil, err
	}
	out := &SessionList{Sessions: []SessionInfo{}}
	for _, s := range o.o.Sessions.Sessions() {
		out.Sessions = append(out.Sessions, infoOf(s))
	}
	return out, c.done(field("listed", strconv.Itoa(len(out.Sessions))))
}

// needsDaemon refuses an admitted command that needs a running daemon when there is none.
func needsDaemon(c *command, err error) (*command, error) {
	if err == nil && c.o.o.Sessions == nil {
		err = c.fail(ErrOffline)
	}
	return c, err
}

// CIRequest asks for a token for CI: of the structural tier only, bound to no process, in
// the name of the operator that makes it. TTL is at most 24 hours, which is also the
// default.
type CIRequest struct {
	Scope []string
	TTL   time.Duration
	Name  string // for lists; decides nothing
}

// IssueCI makes a token for CI.
func (o *Operator) IssueCI(ctx context.Context, by Caller, in CIRequest) (*Issued, error) {
	c, err := needsDaemon(o.enter(ctx, by, "token.create"))
	if err != nil {
		return nil, err
	}
	if err := o.mayIssue(by, in); err != nil {
		return nil, c.fail(err)
	}
	token, made, err := o.o.Sessions.Issue(ctx, session.Request{Subject: by.Who.Name(), Client: in.Name, Scope: in.Scope, TTL: in.TTL, CI: true},
		func(s *session.Session) any { return c.pass.Line(sessionFields(s)...) })
	if err != nil {
		return nil, c.fail(err)
	}
	c.end()
	return issued(token, made), nil
}

func (o *Operator) mayIssue(by Caller, in CIRequest) error {
	switch {
	case len(in.Scope) == 0 || in.TTL < 0 || in.TTL > session.MaxLife || shownText(in.Name) != in.Name:
		return malformed()
	case !slices.Equal(in.Scope, []string{document.Structural}) || !slices.Contains(tiers(o.o.Gate, by.Who), document.Structural):
		return notPermitted()
	}
	return nil
}

// RevokeSession ends a session within five seconds: its token is refused, and what it was
// given is forgotten. It works while the database or the log is unavailable.
// session.ErrUnknown: the session does not exist, or has ended.
func (o *Operator) RevokeSession(ctx context.Context, by Caller, id string) (*SessionInfo, error) {
	c, err := needsDaemon(o.enterRestricting(ctx, by, "session.revoke"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	line := func(s *session.Session) *audit.Record { return c.pass.Line(c.said(sessionFields(s))...) }
	ended, err := o.o.Sessions.End(ctx, id, session.ReasonRevoked, func(s *session.Session) any { return line(s) })
	if errors.Is(err, session.ErrUnsaved) {
		o.s.ends.owe(line(ended))
	} else if err != nil {
		return nil, c.fail(err, c.said([]audit.Field{field("session", clean(id))})...)
	}
	c.end()
	info := infoOf(*ended)
	return &info, nil
}

// OperatorStatus is the state of delivery.
type OperatorStatus struct {
	Store      StoreState     `json:"store"`
	Problems   []Mistake      `json:"problems"`
	Documents  int            `json:"documents"`
	FailClosed bool           `json:"fail_closed"`
	Canary     string         `json:"canary"` // the action for a ref that leaves
	Sessions   *SessionCounts `json:"sessions,omitempty"`
}

// SessionCounts are counts since the start; Live is the present number.
type SessionCounts struct {
	Live     int              `json:"live"`
	Issued   int64            `json:"issued"`
	Renewed  int64            `json:"renewed"`
	Ended    map[string]int64 `json:"ended"`
	Failures map[string]int64 `json:"failures"`
}

// Status returns the state of delivery.
func (o *Operator) Status(ctx context.Context, by Caller) (*OperatorStatus, error) {
	c, err := o.enter(ctx, by, "status")
	if err != nil {
		return nil, err
	}
	set, _ := o.o.Shelf.Set()
	out := &OperatorStatus{Documents: len(set.Documents()), FailClosed: o.o.FailClosed, Canary: string(o.o.Mode)}
	out.Store, out.Problems = o.store()
	if o.o.Sessions != nil {
		out.Sessions = o.counts()
	}
	return out, c.done([]audit.Field{}...)
}

func (o *Operator) counts() *SessionCounts {
	n := o.o.Sessions.Stats()
	failures := map[string]int64{"missing": int64(o.s.Missing())}
	maps.Copy(failures, n.Failures)
	return &SessionCounts{Live: n.Live, Issued: n.Issued, Renewed: n.Renewed, Ended: n.Ended, Failures: failures}
}
