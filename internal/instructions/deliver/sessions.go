package deliver

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

// maxTTL is the longest life that a session may be asked for, in seconds.
const maxTTL = 24 * 60 * 60

// Rules in the records of refused sessions.
const (
	ruleSessions = rulePrefix + "sessions_per_minute"
	ruleScope    = rulePrefix + "scope"
	ruleArgument = rulePrefix + "malformed"
)

// opening is the body of POST /auth/session.
type opening struct {
	Client struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"client"`
	Project string `json:"project"`
	TTL     *int   `json:"ttl_s"`
	Bind    string `json:"bind"`
}

// Issued is a new token with the properties of its session. Times are RFC 3339.
type Issued struct {
	Token        string   `json:"token"`
	SessionID    string   `json:"session_id"`
	Expires      string   `json:"expires"`
	RefreshAfter string   `json:"refresh_after"`
	Scope        []string `json:"scope"`
}

func issued(token string, s *session.Session) *Issued {
	return &Issued{Token: token, SessionID: s.ID, Expires: stamp(s.Expires), RefreshAfter: stamp(s.RefreshAfter), Scope: orEmpty(s.Scope)}
}

// openSession makes a session for the connection's principal. A session's token cannot
// make a further session, because it would then never end.
func (q sessionRequest) openSession() error {
	if !q.unix && q.reader != nil && q.reader.Session != nil {
		return notPermitted()
	}
	var in opening
	if err := decode(q.body, &in); err != nil {
		return err
	}
	pass, err := q.s.o.Gate.Enter(q.act("session").Deferred())
	if denied(err) && isAnonymous(q.who) {
		return q.unknown(errNoToken)
	}
	if err != nil {
		return err
	}
	defer pass.Leave("ok", 0)
	ask, rule, err := q.wanted(in)
	if err != nil {
		return q.s.deliveries.refuseAdmitted(pass, rule, err)
	}
	token, made, err := q.s.o.Sessions.Issue(q.r.Context(), ask, func(s *session.Session) any { return pass.Line(sessionFields(s)...) })
	if err != nil {
		return q.s.deliveries.unmade(pass, err)
	}
	q.s.credentials.made(made.ID, q.who)
	return response(q).created(issued(token, made))
}

// wanted returns the session that a caller asks for, with the scope that policy permits;
// the caller's claims decide nothing. rule is the rule of a refusal.
func (q sessionRequest) wanted(in opening) (ask session.Request, rule string, err error) {
	bind, ok := q.bind(in.Bind)
	client := clientOf(in.Client.Name, in.Client.Version)
	ttl := time.Duration(0)
	if in.TTL != nil {
		ttl = time.Duration(*in.TTL) * time.Second
		ok = ok && *in.TTL >= 1 && *in.TTL <= maxTTL
	}
	if !ok || in.Project != "" && !protocol.ValidNamespace(in.Project) {
		return ask, ruleArgument, malformed()
	}
	scope := q.s.credentials.tiers(q.who)
	if len(scope) == 0 {
		return ask, ruleScope, notPermitted()
	}
	if wait := q.s.web.pace.take(q.who.Name(), q.s.o.Now(), sessionsMost, sessionsSpan); wait > 0 {
		return ask, ruleSessions, rateLimited(int((wait + time.Second - 1) / time.Second))
	}
	return session.Request{Subject: q.who.Name(), Project: in.Project, Client: client, Bind: bind, Maker: makerOf(q.who), Scope: scope, TTL: ttl}, "", nil
}

// bind returns the process that a session ends with: on the Unix socket the caller's own,
// or the ancestor that it names. Over TCP there is none.
func (q sessionRequest) bind(named string) (string, bool) {
	if !q.unix {
		return "", named == ""
	}
	processes, _ := q.s.o.Above(q.r)
	switch {
	case named != "":
		return named, slices.Contains(processes, named)
	case len(processes) == 0:
		return "", true
	}
	return processes[0], true
}

// clientOf returns the client's claimed name and version in a form that is safe to show.
func clientOf(name, version string) string {
	name, version = shownText(name), shownText(version)
	if version != "" {
		name += "/" + version
	}
	return name
}

// maxClaim is how many bytes are kept of a client's claimed name and of its version.
const maxClaim = 63

// shownText returns s without unprintable and non-ASCII characters, cut to maxClaim
// bytes.
func shownText(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s)
	return strings.TrimSpace(s[:min(len(s), maxClaim)])
}

// renewSession issues a new token of the same session. If policy has taken rights away
// since, the renewal is refused; a new session gets the remaining rights.
func (q sessionRequest) renewSession() error {
	if err := decode(q.body, &struct{}{}); err != nil {
		return err
	}
	pass, err := q.s.o.Gate.Enter(q.act("renew").Deferred())
	if err != nil {
		return err
	}
	defer pass.Leave("ok", 0)
	old := q.reader.Session
	if now := q.s.credentials.tiers(q.who); slices.ContainsFunc(old.Scope, func(t string) bool { return !slices.Contains(now, t) }) {
		return q.s.deliveries.refuseAdmitted(pass, ruleScope, notPermitted(), sessionFields(old)...)
	}
	token, renewed, err := q.s.o.Sessions.Renew(q.r.Context(), old, func(s *session.Session) any { return pass.Line(sessionFields(s)...) })
	if err != nil {
		return q.s.deliveries.unmade(pass, err)
	}
	return response(q).created(issued(token, renewed))
}

// endSession ends the session whose token is shown. It works while the database or the
// log is unavailable.
func (q sessionRequest) endSession() error {
	pass, err := q.s.o.Gate.Enter(q.act("end").Deferred())
	if err != nil {
		return err
	}
	defer pass.Leave("ok", 0)
	_, err = q.s.o.Sessions.End(q.r.Context(), q.reader.Session.ID, "ended", func(s *session.Session) any { return pass.Line(sessionFields(s)...) })
	if errors.Is(err, session.ErrUnknown) {
		return q.s.deliveries.refuseAdmitted(pass, rulePrefix+Expired, unauthenticated())
	}
	if errors.Is(err, session.ErrUnsaved) {
		q.s.ends.owe(pass.Line(sessionFields(q.reader.Session)...))
	} else if err != nil {
		return q.s.deliveries.unmade(pass, err)
	}
	q.w.WriteHeader(http.StatusNoContent)
	return nil
}

// act returns the gate act of a request about a session.
func (q sessionRequest) act(what string) gate.Act {
	a := gate.Act{Who: q.who, Action: actionSession, Server: ServerName, Name: what, Bytes: int64(len(q.body)), Source: source, Kind: gate.Guidance}
	if q.reader != nil && q.reader.Session != nil {
		a.Delivery = q.reader.Session.ID
	}
	return a
}

// refuseAdmitted records that an admitted act is refused by a rule, and returns the reason.
func (s *deliveries) refuseAdmitted(pass gate.Pass, rule string, why error, fields ...audit.Field) error {
	if refusal := pass.Refuse(rule, gate.CodeDenied, fields...); refusal.Err != nil {
		return unrecorded(pass, refusal.Err)
	}
	return why
}

// unmade records that an admitted act was not done. The owner of the store takes back a
// record whose commit failed.
func (s *deliveries) unmade(pass gate.Pass, why error) error {
	return s.refuseAdmitted(pass, rulePrefix+ruleWord(why), why)
}

// own is the answer to the bearer of a session's token.
type own struct {
	SessionID    string   `json:"session_id"`
	Subject      string   `json:"subject"`
	Scope        []string `json:"scope"`
	Project      string   `json:"project,omitempty"`
	CI           bool     `json:"ci"`
	Issued       string   `json:"issued"`
	Expires      string   `json:"expires"`
	RefreshAfter string   `json:"refresh_after"`
	Revision     string   `json:"revision"`
}

// ownSession tells a caller the properties of its own session only, so it passes no gate.
func (q sessionRequest) ownSession() error {
	s := q.reader.Session
	return response(q).plain(http.StatusOK, own{SessionID: s.ID, Subject: s.Subject, Scope: orEmpty(s.Scope), Project: s.Project, CI: s.CI, Issued: stamp(s.Issued),
		Expires: stamp(s.Expires), RefreshAfter: stamp(s.RefreshAfter), Revision: q.s.readers.Status(q.reader).Revision})
}

// status returns the state of delivery for the caller. It passes no gate, for the same
// reason.
func (q sessionRequest) status() error {
	return response(q).plain(http.StatusOK, q.s.readers.Status(q.reader))
}

func (q response) created(v any) error { return q.plain(http.StatusCreated, v) }

// plain answers with a body that is no delivery.
func (q response) plain(status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(status)
	q.w.Write(body)
	return nil
}
