// Package relay carries requests between clients and servers: routes, sessions, eras,
// aggregation.
//
// Invariant: no message reaches a server or comes from one to a client unless the gate has
// let it through; params and results travel as the bytes that came, apart from the members
// that a rule of the protocol names; and a connection, cursor or state of one principal is
// never used for another.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Options holds what the relay is built from.
type Options struct {
	Gate    *gate.Gate
	Servers []Server
	Seal    *seal.Sealer
	Log     *slog.Logger
	Version string // of Doorward, for serverInfo
	Dev     bool   // adds error.data.detail
	// StepUp names the scope with which policy would have allowed a denied request; empty: no
	// scope would. nil: there are no scopes.
	StepUp func(policy.Request) string
	// Owner is the name of the principal that gets the reason of a failure, the daemon's own
	// user on the Unix socket; empty: none.
	Owner string
	// Own reports whether a name is one of the daemon's own user. nil: there are none.
	Own func(name string) bool
	// Place returns where a rule stands in the configuration, as FILE:LINE; empty: nowhere.
	// nil: it is not known.
	Place func(rule string) string
	// Guide greets clients and searches messages to servers. nil: neither happens.
	Guide Guide
	// Hold asks the operator about calls that policy holds; nil: they are refused.
	Hold *Hold
	// Opened is called for each connection to a program that sessions share. nil: never.
	Opened func(server string, f Face)
	// Note queues the record of a finding. nil: it is written at once.
	Note func(*audit.Record)
	// Observer measures requests; nil: they are not measured.
	Observer Observer
}

// Relay implements front.Handler. Each of its jobs is a type that holds what it works with.
type Relay struct {
	gate    *gate.Gate
	log     *slog.Logger
	table   atomic.Pointer[table]
	closing context.Context
	close   context.CancelFunc

	acts        acts
	sight       sight
	leaving     leaving
	failures    failures
	holding     holding
	translation translation
	levels      levels
	links       links
	sessions    sessions
	calls       calls
	lists       lists
	greetings   greetings
	listens     listens
	notices     notices
}

// New makes a relay. Close ends every connection it opened.
func New(o Options) *Relay {
	r := &Relay{gate: o.Gate, log: o.Log}
	r.closing, r.close = lifetime.New(context.Background())
	if o.Guide == nil {
		o.Guide = unguided{}
	}
	if o.Note == nil {
		o.Note = r.recordNow
	}
	info := append([]byte(`{"name":"doorward","version":`), rawjson.AppendQuote(nil, o.Version)...)
	r.wire(o, watch{o: o.Observer}, append(info, '}'))
	r.SetServers(o.Servers)
	go r.sweep()
	return r
}

// wire builds each job from what it works with.
func (r *Relay) wire(o Options, w watch, info []byte) {
	r.acts = acts{own: o.Own, table: &r.table}
	r.sight = sight{gate: o.Gate, table: &r.table}
	r.failures = failures{log: o.Log, dev: o.Dev, owner: o.Owner, place: o.Place, stepUp: o.StepUp, table: &r.table, closing: r.closing}
	r.leaving = leaving{gate: o.Gate, guide: o.Guide, acts: &r.acts, failures: &r.failures}
	r.holding = holding{gate: o.Gate, seal: o.Seal, hold: o.Hold, watch: w, failures: &r.failures, sessions: &r.sessions}
	r.translation = translation{gate: o.Gate, seal: o.Seal, log: o.Log, info: info, watch: w}
	r.levels = levels{gate: o.Gate, acts: &r.acts, log: o.Log}
	r.links = links{gate: o.Gate, info: info, meta: era.OwnMeta(info), closing: r.closing, opens: o.Opened, note: o.Note, log: o.Log, watch: w, room: r.sessions.makeRoom,
		acts: &r.acts, leaving: &r.leaving, translation: &r.translation}
	r.sessions = sessions{left: leftAfter, table: &r.table, log: o.Log, acts: &r.acts, sight: &r.sight, levels: &r.levels, links: &r.links}
	r.calls = calls{gate: o.Gate, seal: o.Seal, log: o.Log, note: o.Note, watch: w, parkFor: parkTime, acts: &r.acts, leaving: &r.leaving,
		failures: &r.failures, holding: &r.holding, translation: &r.translation, levels: &r.levels, sessions: &r.sessions}
	r.lists = lists{gate: o.Gate, seal: o.Seal, log: o.Log, watch: w, table: &r.table, acts: &r.acts, sight: &r.sight, leaving: &r.leaving,
		failures: &r.failures, translation: &r.translation, levels: &r.levels, sessions: &r.sessions, calls: &r.calls}
	r.greetings = greetings{gate: o.Gate, watch: w, guide: o.Guide, info: info, acts: &r.acts, sight: &r.sight, failures: &r.failures, sessions: &r.sessions}
	r.listens = listens{gate: o.Gate, seal: o.Seal, log: o.Log, watch: w, closing: r.closing, audience: &r.sessions.audience, acts: &r.acts,
		sight: &r.sight, leaving: &r.leaving, failures: &r.failures, links: &r.links}
	r.notices = notices{gate: o.Gate, watch: w, note: o.Note, table: &r.table, acts: &r.acts, sight: &r.sight, leaving: &r.leaving,
		failures: &r.failures, translation: &r.translation, sessions: &r.sessions}
}

// recordNow writes the record of a finding at once.
func (r *Relay) recordNow(line *audit.Record) {
	if _, err := r.gate.Record(line); err != nil {
		r.log.Error("a finding was not recorded", "rule", line.Rule, "err", err)
	}
}

// SetServers replaces the configured servers. A server whose definition is unchanged keeps
// its connections; one that changed or is gone loses them.
func (r *Relay) SetServers(servers []Server) {
	old := r.table.Load()
	t := &table{byName: make(map[string]*backend, len(servers))}
	for _, s := range servers {
		b := newBackend(s)
		if old != nil && old.byName[s.Name] != nil {
			if was := old.byName[s.Name]; was.Server == s {
				b = was
			} else {
				b.fallen.Store(was.fallen.Load() + replaced)
			}
		}
		t.byName[s.Name] = b
		t.sorted = append(t.sorted, b)
	}
	sort.Slice(t.sorted, func(i, j int) bool { return t.sorted[i].Name < t.sorted[j].Name })
	if old != nil {
		t.succeed(old)
	}
	r.table.Store(t)
	if old == nil {
		return
	}
	for _, b := range old.sorted {
		if t.byName[b.Name] != b {
			b.close()
		}
	}
}

// Close ends every connection.
func (r *Relay) Close() {
	r.close()
	for _, b := range r.table.Load().sorted {
		b.close()
	}
}

func (r *Relay) sweep() {
	tick := time.Tick(time.Minute)
	for {
		select {
		case <-tick:
			r.sessions.rest(time.Now().Add(-poolIdle))
			for _, b := range r.table.Load().sorted {
				b.sweep(time.Now().Add(-poolIdle))
			}
		case <-r.closing.Done():
			return
		}
	}
}

// Known implements front.Handler. The aggregate exists for every caller that may initialize.
// A server that cannot be used still exists.
func (r *Relay) Known(who *principal.Principal, server string) bool {
	if server == "" {
		return r.gate.Allows(policy.Request{Who: who, Action: "initialize"}).Allow
	}
	b := r.table.Load().byName[server]
	return b != nil && (r.sight.visible(who, server) || r.sight.shut(who, b))
}

// Notification implements front.Handler.
func (r *Relay) Notification(ctx context.Context, x *front.Exchange) *wire.Error {
	return r.notices.take(ctx, x)
}

// Announce tells every listening client to list again, and then ends the listens that do not
// hear all of their clients' servers. Call it after the policy or the servers have changed.
func (r *Relay) Announce() {
	r.announce(func(subscribe.Ear) bool { return true })
	r.listens.renew()
	r.sessions.follow()
}

// AnnounceOf tells the listening clients that may see a server to list again. Call it after other
// definitions of the server were approved.
func (r *Relay) AnnounceOf(server string) {
	r.announce(func(e subscribe.Ear) bool { return e.Sees(server) })
}

func (r *Relay) announce(to func(subscribe.Ear) bool) {
	for _, ear := range r.sessions.audience.All() {
		if !to(ear) {
			continue
		}
		for method := range subscribe.ListCapability {
			ear.Announce(method)
		}
	}
}

// Full answers an exchange that the front turned away at a limit.
func (r *Relay) Full(x *front.Exchange, rule string) front.Reply {
	wait := sessionWait
	if rule == gate.RuleCalls {
		wait = time.Second
	}
	return r.failures.refused(r.gate.Refuse(r.acts.of(x, x.Server, x.Method, ""), rule, gate.CodeUnavailable, wait))
}

// Restart ends the open connections to all servers of a kind, and returns their number. To
// callers it looks as if the servers had ended: the next call opens another connection.
func (r *Relay) Restart(kind string) (ended int) {
	for _, b := range r.table.Load().sorted {
		if b.Kind == kind {
			ended += b.restart()
		}
	}
	return ended
}

// RestartServer ends the connections to one server, and with them its processes; they open
// again when needed. found: the server exists.
func (r *Relay) RestartServer(name string) (ended int, found bool) {
	b := r.table.Load().byName[name]
	if b == nil || b.Builtin != nil {
		return 0, false
	}
	return b.restart(), true
}

// ErrNoServer says that no server of that name is configured.
var ErrNoServer = errors.New("no such server")

// lookTime bounds Look.
const lookTime = 20 * time.Second

// Look asks a server for all that it offers, to show what is withheld. A program whose start
// is withheld is not started.
func (r *Relay) Look(ctx context.Context, who *principal.Principal, server string) error {
	b := r.table.Load().byName[server]
	if b == nil {
		return ErrNoServer
	}
	if b.Pin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	l := r.links.pooled(b, who, front.Modern)
	l.calls.Add(1)
	defer l.calls.Add(-1)
	c, err := l.get(ctx)
	if errors.Is(err, pin.ErrWithheld) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.offers.Look(ctx)
}

// Status lists the configured servers.
func (r *Relay) Status() []Status {
	var out []Status
	for _, b := range r.table.Load().sorted {
		s := Status{Name: b.Name, Kind: b.Kind, Era: b.era(), Instances: b.instances()}
		s.State, s.Reason = b.state(s.Instances)
		fell, lines := fallOf(b)
		s.Ended, s.Stderr = fell != "", lines
		s.Reason = strings.Join(slices.DeleteFunc([]string{s.Reason, fell, b.owed.Text()}, func(s string) bool { return s == "" }), "; ")
		if s.State == Failing && b.Upstream != nil {
			_, s.Stderr = b.Upstream.LastWords()
		}
		out = append(out, s)
	}
	return out
}
