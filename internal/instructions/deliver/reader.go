package deliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// factLauncher is the verified fact of what an agent was started with: its role.
const factLauncher = "launcher"

// bearerMark begins the ids of bearer tokens where the id of a session could
// stand. No session's id has a colon.
const bearerMark = "bearer:"

// bearers are the bearer tokens that were shown beside a connection of another
// kind, as a CI job on the Unix socket does, each proved at the door with every
// request that shows it.
type bearers struct {
	mu sync.Mutex
	of map[string]bearing
}

type bearing struct {
	who   *principal.Principal
	until time.Time
}

// bearersKept bounds the tokens that are remembered; the oldest go first.
const bearersKept = 256

// bearer is the id by which a request bears who, whose token was proved just
// now. It depends on everything that is known of the token, so that two tokens
// of one name do not lend each other their rights.
func (s *credentials) bearer(who *principal.Principal) (id string) {
	sum := sha256.Sum256([]byte(who.Identity()))
	id = bearerMark + hex.EncodeToString(sum[:8])
	s.bearers.add(id, bearing{who, s.o.Now().Add(bearerKept)})
	return id
}

func (b *bearers) add(id string, is bearing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[string]bearing)
	}
	if _, known := b.of[id]; !known && len(b.of) >= bearersKept {
		oldest := ""
		for k, v := range b.of {
			if oldest == "" || v.until.Before(b.of[oldest].until) {
				oldest = k
			}
		}
		delete(b.of, oldest)
	}
	b.of[id] = is
}

// find returns the session of an id; nil: it has ended or never was.
func (b *bearers) find(id string, now time.Time) *principal.Principal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if is, ok := b.of[id]; ok && now.Before(is.until) {
		return is.who
	}
	return nil
}

func (b *bearers) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, is := range b.of {
		if !now.Before(is.until) {
			delete(b.of, id)
		}
	}
}

// readerOf returns the reader of an act; nil, and why, where the act has none.
func (s *readers) readerOf(a gate.Act) (r *Reader, why string) {
	switch {
	case s.storage.Away(), a.Delivery == unjudged:
		return nil, Unreachable // a token would not help
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

// sessionReader is the reader that a session makes of a connection: the
// connection itself where the kernel says that it is the session's own, and
// elsewhere the session's principal, with the connection beside it. nil: what
// the session stands on is no more.
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

// attested reports whether the kernel identifies the caller: then the session
// must belong to it. Elsewhere a session token counts for any bearer.
func attested(who *principal.Principal) bool {
	kind, _, _ := strings.Cut(who.Name(), ":")
	return kind == principal.KindUID || kind == principal.KindSpawn
}

// byBearer reports whether a token of its own proves a principal.
func byBearer(who *principal.Principal) bool {
	kind, _, _ := strings.Cut(who.Name(), ":")
	return kind == principal.KindToken || kind == principal.KindOAuth
}

// bearerReader is the reader that a bearer token's own principal is: without a
// session, in the tiers that policy gives it now.
func (s *readers) bearerReader(who *principal.Principal) *Reader {
	return &Reader{Who: who, Scope: s.credentials.tiers(who)}
}

func (s *credentials) holds(who *principal.Principal) bool { return s.o.Holds == nil || s.o.Holds(who) }

// alive reports whether a reader may still be given something.
func (s *readers) alive(r *Reader) bool { return r.Session == nil || s.credentials.lives(r.Session.ID) }

// scope is the tiers that a reader may have: those of its session that policy
// still grants the session's maker.
func (s *readers) scope(r *Reader) []string {
	if r.Session == nil || r.Who.Name() != r.Session.Subject {
		return r.Scope
	}
	now := s.credentials.tiers(r.Who)
	return slices.DeleteFunc(slices.Clone(r.Scope), func(t string) bool { return !slices.Contains(now, t) })
}

// caller is what audiences know of a reader. Its own claim is in Project only.
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

// view is what a reader may get now. It waits for the store at most as long as
// patience.
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
	if state.OK || r.Session != nil { // a bearer's time is not prolonged while the store is away
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

// see is the view of set that a reader has, and what else it depends on.
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

// glance computes the view of a reader without a delivery; false: there is none
// now.
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

// revision is that of what a reader may get; empty while there is nothing.
func (s *readers) revision(r *Reader) string {
	if v, ok := s.glance(r); ok {
		return v.Revision()
	}
	return ""
}

// Degraded returns why a reader gets less than its full guidance; empty: it gets
// all. A nil reader is a caller without a token.
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
