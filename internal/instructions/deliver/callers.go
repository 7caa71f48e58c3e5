package deliver

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// factSession is the name of the verified fact that a principal comes from a session
// token; its value is the session's id.
const factSession = "session"

// factProcess is the name of the observed fact of the process behind a connection, in the
// form of peer.Ancestors. Sessions are bound to processes in this form.
const factProcess = "process"

// factToken is the name of the fact of the bearer token that proved a principal: its id.
const factToken = "token"

// unjudged stands in gate.Act.Delivery for a token that could not be verified. It counts
// as no session, and no session has that id.
const unjudged = "unjudged"

// endedSession stands in gate.Act.Delivery for an ended session. It counts as no session,
// and the caller is told that its session has expired. No session has that id.
const endedSession = "ended"

// web is the state of the routes between requests.
type web struct {
	pace    pace          // of POST /auth/session
	chains  chains        // of callers that showed a token
	missing atomic.Uint64 // requests that needed a token and showed none
	spoken  atomic.Int64  // when a failure was last logged, in Unix seconds

	mu sync.Mutex
	// makers are the principals of the bearer tokens that sessions were made with, by
	// session id. The facts that policy reads of them are not stored in the session's
	// row.
	makers map[string]*principal.Principal
}

// credentials verifies the proofs of a reader: session tokens, bearer tokens, and the
// principals behind them.
type credentials struct {
	o       *Options
	web     *web
	bearers bearers
}

// made remembers the principal that made a live session by a bearer token.
func (s *credentials) made(id string, by *principal.Principal) {
	if !byBearer(by) {
		return
	}
	s.web.remember(id, by)
	if !s.lives(id) { // it may have ended before it was remembered
		s.web.forget(id)
	}
}

func (v *web) remember(id string, by *principal.Principal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.makers == nil {
		v.makers = make(map[string]*principal.Principal)
	}
	v.makers[id] = by
}

func (v *web) maker(id string) *principal.Principal {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.makers[id]
}

// forget drops the maker of a session that has ended.
func (v *web) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.makers, id)
}

// Authenticate returns the principal of a session token that is shown over TCP, where it
// authenticates the paths under /auth/ and nothing else. Every error is answered with a
// 401; for errors.As, *session.Invalid gives the operator the reason.
func (s *Server) Authenticate(r *http.Request) (*principal.Principal, error) {
	shown, err := shownBy(http.Header{"Authorization": r.Header["Authorization"]}, false)
	switch {
	case err != nil:
		return nil, err
	case shown.session == "":
		return nil, errPlace
	}
	found, err := s.o.Sessions.Check(shown.session, session.Caller{Held: s.credentials.held(r)})
	if err != nil {
		return nil, err
	}
	return s.credentials.bySession(r, found)
}

// held returns a function that looks up the process behind a connection over TCP.
func (s *credentials) held(r *http.Request) func() ([]string, bool) {
	if s.o.Held == nil {
		return nil
	}
	return func() ([]string, bool) { return s.o.Held(r) }
}

// bySession returns the principal of a session whose token arrived over TCP. The
// token is a bearer secret, so the caller's process is no fact of it. The scope
// of the bearer token that made the session is not stored in the session: it is
// looked up, and when it is gone the session is no longer proved. A started agent
// is identified by its process tree, and in no other way.
func (s *credentials) bySession(r *http.Request, found *session.Session) (*principal.Principal, error) {
	return s.ofSession(found, s.o.Local != nil && s.o.Local(r))
}

// ofSession is bySession with the locality of the connection as an argument.
func (s *credentials) ofSession(found *session.Session, local bool) (*principal.Principal, error) {
	facts := []principal.Fact{{Name: factSession, Value: found.ID, Grade: principal.Verified}}
	kind, rest, err := principal.Parse(found.Subject)
	if err != nil {
		return nil, errPlace
	}
	switch kind {
	case principal.KindUID:
		facts = append(facts, principal.Fact{Name: "uid", Value: rest, Grade: principal.Verified})
	case principal.KindToken, principal.KindOAuth:
		by := s.standing(found)
		if by == nil {
			return nil, errPlace
		}
		facts = append(facts, by.Facts()...)
	case principal.KindSpawn:
		return nil, errPlace
	}
	who := principal.New(found.Subject, facts...)
	if local {
		who = who.WithLocal()
	}
	return who, nil
}

// standing returns the principal of the bearer token that a session was made with; nil
// when that is not valid any more. The sessions of a token of Doorward end when it is
// revoked or has expired. An access token lives for an hour and is renewed elsewhere, so
// its sessions outlive it; they end with this daemon, because only its memory has the
// facts of the token.
func (s *credentials) standing(found *session.Session) *principal.Principal {
	by := s.web.maker(found.ID)
	kind, _, _ := principal.Parse(found.Subject)
	switch {
	case kind != principal.KindToken:
		return by
	case by != nil && s.holds(by):
		return by
	case by != nil || s.o.Named == nil:
		return nil
	}
	by = s.o.Named(found.Subject)
	if by == nil || found.Maker == "" || makerOf(by) != found.Maker {
		return nil // another token has the name now
	}
	return by
}

// makerOf returns the id of the token of Doorward that proved a principal; empty: none
// did.
func makerOf(who *principal.Principal) string {
	if f, ok := who.Fact(factToken); ok && byBearer(who) && f.Grade.MayAllow() {
		return f.Value
	}
	return ""
}

// byBearer reports whether a bearer token proves a principal.
func byBearer(who *principal.Principal) bool {
	kind, _, _ := strings.Cut(who.Name(), ":")
	return kind == principal.KindToken || kind == principal.KindOAuth
}

// stands reports whether the bearer token that a session was made with, if any, is still
// valid.
func (s *credentials) stands(found *session.Session) bool {
	return !byBearer(principal.New(found.Subject)) || s.standing(found) != nil
}

// lives reports whether a delivery session has not ended, and the bearer token that it
// was made with, if any, is still valid.
func (s *credentials) lives(id string) bool {
	found, ok := s.o.Sessions.Find(id)
	return ok && found.Ended.IsZero() && s.o.Now().Before(found.Expires.Add(session.Tolerance)) && s.stands(&found)
}

func (s *credentials) holds(who *principal.Principal) bool { return s.o.Holds == nil || s.o.Holds(who) }

// Delivery returns the delivery session, or the bearer token, in the header
// Doorward-Session of an MCP request, as an id for gate.Act.Delivery; empty without the
// header. The header comes in addition to the caller's authentication. With an ended
// session the caller loses only the guidance, unless the client announces that it can
// renew (protocol.HeaderRenews). Every error is answered with a 401; with errors.As,
// *session.Invalid gives the operator the reason.
func (s *Server) Delivery(r *http.Request, who *principal.Principal) (id string, err error) {
	values := r.Header[protocol.HeaderSession]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", errTwice
	}
	shown := tokenOf(values[0])
	if shown.session != "" {
		if s.storage.Away() {
			return unjudged, nil
		}
		found, err := s.credentials.check(r, who, shown.session)
		switch {
		case hasEnded(err) && len(r.Header[protocol.HeaderRenews]) == 0:
			if s.o.Refused != nil {
				s.o.Refused(r, err.Error())
			}
			return endedSession, nil
		case err != nil:
			return "", err
		}
		return found.ID, nil
	}
	by, err := s.credentials.proved(r, who, shown)
	if err != nil {
		return "", err
	}
	return s.credentials.bearer(by), nil
}

// hasEnded reports that a token was issued here and its session has ended.
func hasEnded(err error) bool {
	var invalid *session.Invalid
	return errors.As(err, &invalid) && (invalid.Reason == session.Expired || invalid.Reason == session.Revoked)
}

// check verifies a session token that came beside a connection. On the Unix socket the
// session must be the caller's own.
func (s *credentials) check(r *http.Request, who *principal.Principal, token string) (*session.Session, error) {
	c := session.Caller{Unix: s.o.Unix(r), Principal: who.Name(), Held: s.held(r)}
	if c.Unix {
		own := ""
		if s.o.Instance != nil {
			own = s.o.Instance(r)
		}
		if f, ok := who.Fact(factProcess); ok && f.Grade >= principal.Observed && f.Value != "" {
			c.Processes = []string{f.Value}
		}
		c.Above = func() ([]string, bool) { return s.above(r, own) }
	}
	found, err := s.o.Sessions.Check(token, c)
	switch {
	case err != nil:
		return nil, err
	case !c.Unix && isStarted(principal.New(found.Subject)):
		return nil, errPlace
	case !s.stands(found): // the next sweep ends it
		return nil, &session.Invalid{Reason: session.Revoked}
	}
	return found, nil
}

// proved returns the principal of a bearer token that came beside a connection. A started
// agent cannot use a token other than its own.
func (s *credentials) proved(r *http.Request, who *principal.Principal, shown shown) (*principal.Principal, error) {
	if shown.bearer == "" || isStarted(who) {
		return nil, errPlace
	}
	by, err := s.o.Bearer(r, shown.bearer)
	if err != nil {
		return nil, err
	}
	if !by.Valid() {
		return nil, errPlace
	}
	return by, nil
}

func isStarted(who *principal.Principal) bool {
	kind, _, _ := principal.Parse(who.Name())
	return kind == principal.KindSpawn
}

// isAnonymous reports whether only a loopback socket identifies the caller.
func isAnonymous(who *principal.Principal) bool {
	kind, _, _ := principal.Parse(who.Name())
	return kind == principal.KindLoopback
}

// tiers returns the tiers that policy lets a principal read, sorted. The question has no
// record; the act that uses the answer has one.
func (s *credentials) tiers(who *principal.Principal) []string { return tiers(s.o.Gate, who) }

func tiers(g *gate.Gate, who *principal.Principal) []string {
	var out []string
	for _, t := range []struct{ tier, action string }{{document.Behavioural, actionBehavioral}, {document.Structural, actionStructural}} {
		if g.Allows(policy.Request{Who: who, Action: t.action, Server: ServerName}).Allow {
			out = append(out, t.tier)
		}
	}
	return out
}

func field(name, value string) audit.Field { return audit.Field{Name: name, Value: value} }
