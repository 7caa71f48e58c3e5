package deliver

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// readers determines the reader of a request, and the view of the set that it has now.
type readers struct {
	o           *Options
	storage     *storage
	credentials *credentials
	cache       cache
	rules       atomic.Uint64 // number of policy changes
}

// factLauncher is the verified fact of the launcher that an agent was started with, which
// is its role.
const factLauncher = "launcher"

// readerOf returns the reader of an act; nil and the reason if the act has none.
func (s *readers) readerOf(a gate.Act) (r *Reader, why string) {
	switch {
	case s.storage.Away(), a.Delivery == unjudged:
		return nil, Unreachable // a token cannot be verified now
	case strings.HasPrefix(a.Delivery, bearerMark):
		who := s.credentials.bearers.find(a.Delivery, s.o.Now())
		if who == nil || !s.credentials.holds(who) {
			return nil, Expired
		}
		r = s.bearerReader(who)
	case a.Delivery != "":
		found, ok := s.o.Sessions.Find(a.Delivery)
		if !ok || !s.credentials.lives(a.Delivery) || attested(a.Who) && found.Subject != a.Who.Name() {
			return nil, Expired
		}
		if r = s.sessionReader(a.Who, &found); r == nil {
			return nil, Expired
		}
	case byBearer(a.Who):
		r = s.bearerReader(a.Who)
	default:
		return nil, NoToken
	}
	r.MCP, r.Holds = a.Session, a.Holds
	return r, ""
}

// sessionReader returns the reader for a session on a connection. Where the kernel
// identifies the caller, it is the connection's principal, to which the session belongs;
// elsewhere it is the session's principal, with the connection beside it. nil: the token
// that the session was made with is not valid any more.
func (s *readers) sessionReader(who *principal.Principal, found *session.Session) *Reader {
	r := &Reader{Who: who, Session: found, Scope: found.Scope}
	if attested(who) {
		return r
	}
	of, err := s.credentials.ofSession(found, who.Local())
	if err != nil {
		return nil
	}
	r.Who, r.Beside = of, who
	return r
}

// attested reports whether the kernel identifies the caller. The session must then belong
// to it; elsewhere a session token is valid for every bearer.
func attested(who *principal.Principal) bool {
	kind, _, _ := strings.Cut(who.Name(), ":")
	return kind == principal.KindUID || kind == principal.KindSpawn
}

// bearerReader returns the reader for the principal of a bearer token: without a session,
// in the tiers that policy permits now.
func (s *readers) bearerReader(who *principal.Principal) *Reader {
	return &Reader{Who: who, Scope: s.credentials.tiers(who)}
}

// alive reports whether the session of a reader, if it has one, has not ended.
func (s *readers) alive(r *Reader) bool { return r.Session == nil || s.credentials.lives(r.Session.ID) }

// scope returns the tiers of a reader. For a session of the reading principal itself,
// these are the session's tiers that policy still permits.
func (s *readers) scope(r *Reader) []string {
	if r.Session == nil || r.Who.Name() != r.Session.Subject {
		return r.Scope
	}
	now := s.credentials.tiers(r.Who)
	return slices.DeleteFunc(slices.Clone(r.Scope), func(t string) bool { return !slices.Contains(now, t) })
}

// caller returns the properties of a reader that audiences match. Only Project is the
// reader's own claim.
func (s *readers) caller(r *Reader) document.Caller {
	c := document.Caller{Principal: r.Who.Name(), Environment: s.o.Environment}
	for p := r.Who.Parent(); p != nil; p = p.Parent() {
		c.Lineage = append(c.Lineage, p.Name())
	}
	if f, ok := r.Who.Fact(factLauncher); ok && f.Grade.MayAllow() {
		c.Role = f.Value
	}
	if r.Session != nil {
		c.Project = r.Session.Project
	}
	return c
}

// view returns the view that a reader has now. It waits for the store at most until
// patience has passed since the start.
func (s *readers) view(ctx context.Context, r *Reader) (sight, error) {
	if !s.alive(r) {
		return sight{}, ErrEnded
	}
	s.storage.settle(ctx)
	set, state := s.o.Library.Set()
	if s.lost(r, state) {
		return sight{}, ErrStore
	}
	v, on := s.see(r, set)
	var until time.Time
	if r.Session == nil {
		until = s.o.Now().Add(bearerKept)
	}
	if state.OK || r.Session != nil { // a bearer's time is not prolonged while the store is unavailable
		s.cache.keep(r.key(), on, v, until)
	}
	if !s.alive(r) { // it may have ended before it was kept
		s.cache.drop(r.key())
		return sight{}, ErrEnded
	}
	return v, nil
}

// lost reports that a reader gets nothing of the set: the store is unavailable and
// the reader had nothing before, or everything was withdrawn.
func (s *readers) lost(r *Reader, state library.State) bool {
	return !state.OK && (state.Withdrawn || !s.cache.has(r.key(), s.o.Now()))
}

// see returns the view of set for a reader, and the key of what else it depends on.
func (s *readers) see(r *Reader, set *document.Set) (sight, string) {
	in := *r
	in.Scope = s.scope(r)
	on := strings.Join(append([]string{strconv.FormatUint(s.rules.Load(), 36), r.Who.Identity(), r.connection().Identity(), strconv.FormatBool(r.Holds)}, in.Scope...), "\x00")
	if v, ok := s.cache.find(r.key(), on, set); ok {
		return v, on
	}
	may := func(d *document.Document) bool { return s.may(&in, d, set.Tier(d)) }
	return sight{set.View(s.caller(r), may), set}, on
}

// glance returns the view of a reader without a delivery; false: it has none now.
func (s *readers) glance(r *Reader) (sight, bool) {
	if r == nil || !s.alive(r) {
		return sight{}, false
	}
	set, state := s.o.Library.Set()
	if s.lost(r, state) {
		return sight{}, false
	}
	v, _ := s.see(r, set)
	return v, true
}

// revision returns the revision of a reader's view; empty: it has none.
func (s *readers) revision(r *Reader) string {
	if v, ok := s.glance(r); ok {
		return v.Revision()
	}
	return ""
}

// Degraded returns the reason for which a reader lacks guidance; empty: it lacks none. A
// nil reader is a caller without a token.
func (s *readers) Degraded(r *Reader) string {
	if s.storage.Away() {
		return Unreachable
	}
	if r == nil {
		return NoToken
	}
	if !s.alive(r) {
		return Expired
	}
	if len(s.scope(r)) == 0 || !s.decide(r, policy.Request{Action: actionRead, Server: ServerName}).Allow {
		return NotPermitted
	}
	if _, state := s.o.Library.Set(); s.lost(r, state) {
		return Unreachable
	}
	return ""
}

// decide asks policy about a reader. It asks for the connection's principal and for the
// maker of the session, and both must be allowed: neither lends the other a right. It
// returns the rule that refuses, or the one that holds the act, which is the connection's
// if both hold it.
func (s *readers) decide(r *Reader, q policy.Request) policy.Decision {
	q.Who, q.Holds = r.Who, r.Holds
	d := s.o.Gate.Allows(q)
	if d.Allow && r.Beside != nil {
		ask := d.Ask
		q.Who = r.Beside
		if d = s.o.Gate.Allows(q); d.Ask.Rule == "" {
			d.Ask = ask
		}
	}
	return d
}

// may reports whether policy lets the reader read a document of that tier. It is called
// for each document of a view, without a record: the delivery has one.
func (s *readers) may(r *Reader, d *document.Document, tier string) bool {
	return slices.Contains(r.Scope, tier) && s.decide(r, policy.Request{Action: actionRead, Server: ServerName, Name: d.Name}).Allow
}
