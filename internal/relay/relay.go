// Package relay carries one Exchange from a client's face to a server's face
// and back: routes, sessions, eras, aggregation.
//
// Invariant: nothing reaches a server, and nothing of a server reaches a
// client, that gate has not let through; params and results travel as the
// bytes that came, apart from the members that a rule of the protocol names;
// and a connection, cursor or state of one principal is never used for
// another.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Options are what the relay is built from.
type Options struct {
	Gate    *gate.Gate
	Servers []Server
	Seal    *seal.Sealer
	Log     *slog.Logger
	Version string // of Doorward, for serverInfo
	Dev     bool   // error.data.detail
	// StepUp names the scope with which policy would have allowed what it
	// denied; empty where no scope would. nil: there are no scopes.
	StepUp func(policy.Request) string
	// Owner is the name of the principal that a failure tells its reason, the daemon's own
	// user on the Unix socket; empty: none is told.
	Owner string
	// Own reports the names of the daemon's own user. nil: there are none.
	Own func(name string) bool
	// Place is where a rule stands in the configuration, FILE:LINE; empty: nowhere. nil: it is not known.
	Place func(rule string) string
	// Guide greets clients and searches what leaves. nil: neither happens.
	Guide Guide
	// Hold asks the operator about calls that policy holds; nil: they are refused.
	Hold *Hold
	// Opened is told of each connection to a program that sessions share. nil: none is.
	Opened func(server string, f Face)
	// Note queues the record of a finding. nil: it is written at once.
	Note func(*audit.Record)
	// Observer measures requests; nil: nothing does.
	Observer Observer
}

// Relay implements front.Handler.
type Relay struct {
	gate     *gate.Gate
	seal     *seal.Sealer
	log      *slog.Logger
	info     []byte // our own {"name","version"}
	meta     []byte // of requests that Doorward makes itself
	opened   func(string, Face)
	note     func(*audit.Record)
	watch    watch
	table    atomic.Pointer[table]
	audience subscribe.Audience
	parkFor  time.Duration // how long a parked call waits
	bindings sync.Map      // *binding: the sessions that there are
	closing  context.Context
	close    context.CancelFunc

	acts        acts
	sight       sight
	leaving     leaving
	translation translation
	failures    failures
	holding     holding
}

// New makes a relay. Close ends every connection it opened.
func New(o Options) *Relay {
	r := &Relay{gate: o.Gate, seal: o.Seal, log: o.Log, opened: o.Opened, note: o.Note, watch: watch{o: o.Observer}, parkFor: parkTime}
	if o.Guide == nil {
		o.Guide = unguided{}
	}
	if r.note == nil {
		r.note = r.recordNow
	}
	r.info = append([]byte(`{"name":"doorward","version":`), rawjson.AppendQuote(nil, o.Version)...)
	r.info = append(r.info, '}')
	r.meta = era.OwnMeta(r.info)
	r.closing, r.close = context.WithCancel(context.Background())
	r.acts = acts{own: o.Own, table: &r.table}
	r.sight = sight{gate: o.Gate, table: &r.table}
	r.leaving = leaving{gate: o.Gate, guide: o.Guide, acts: &r.acts, failures: &r.failures}
	r.translation = translation{gate: o.Gate, seal: o.Seal, log: o.Log, watch: r.watch}
	r.failures = failures{log: o.Log, dev: o.Dev, owner: o.Owner, place: o.Place, stepUp: o.StepUp, table: &r.table, closing: r.closing}
	r.holding = holding{gate: o.Gate, seal: o.Seal, hold: o.Hold, watch: r.watch, failures: &r.failures}
	r.SetServers(o.Servers)
	go r.sweep()
	return r
}

// recordNow writes the record of a finding at once.
func (r *Relay) recordNow(line *audit.Record) {
	if _, err := r.gate.Record(line); err != nil {
		r.log.Error("a finding was not recorded", "rule", line.Rule, "err", err)
	}
}

// SetServers replaces the configured servers. A server that is the same in
// every respect keeps its connections; one that changed or is gone loses them.
func (r *Relay) SetServers(servers []Server) {
	old := r.table.Load()
	t := &table{byName: make(map[string]*backend, len(servers))}
	for _, s := range servers {
		b := newBackend(s)
		if old != nil && old.byName[s.Name] != nil && old.byName[s.Name].Server == s {
			b = old.byName[s.Name]
		}
		t.byName[s.Name] = b
		t.sorted = append(t.sorted, b)
	}
	sort.Slice(t.sorted, func(i, j int) bool { return t.sorted[i].Name < t.sorted[j].Name })
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

// Restart ends the open connections to all servers of a kind, and returns their
// number. For their callers the server has ended by itself: the next call opens
// another connection.
func (r *Relay) Restart(kind string) (ended int) {
	for _, b := range r.table.Load().sorted {
		if b.Kind != kind {
			continue
		}
		b.mu.Lock()
		b.prune()
		open := slices.Collect(maps.Keys(b.conns))
		b.mu.Unlock()
		for _, c := range open {
			c.conn.Close()
		}
		ended += len(open)
	}
	return ended
}

// Close ends every connection.
func (r *Relay) Close() {
	r.close()
	for _, b := range r.table.Load().sorted {
		b.close()
	}
}

func (r *Relay) sweep() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.rest(time.Now().Add(-poolIdle))
			for _, b := range r.table.Load().sorted {
				b.sweep(time.Now().Add(-poolIdle))
			}
		case <-r.closing.Done():
			return
		}
	}
}

// Known implements front.Handler. The aggregate exists for every caller that the
// policy knows. A server that cannot be used still exists.
func (r *Relay) Known(who *principal.Principal, server string) bool {
	if server == "" {
		return r.gate.Allows(policy.Request{Who: who, Action: "initialize"}).Allow
	}
	b := r.table.Load().byName[server]
	return b != nil && (r.sight.visible(who, server) || r.sight.shut(who, b))
}

// Request implements front.Handler.
func (r *Relay) Request(ctx context.Context, x *front.Exchange) front.Reply {
	asked, err := resolve.Request(x.Server, x.Method, x.ID, x.Params)
	if err != nil {
		return front.Reply{Error: unresolved(x.Method, err)}
	}
	if reply := r.leaving.hello(x); reply != nil {
		return *reply
	}
	if x.Server == "" {
		return r.aggregate(ctx, x, asked)
	}
	t, ok := r.table.Load().aim(asked)
	if !ok { // taken out since the door looked
		return front.Reply{Error: failure.NoServer, Status: http.StatusNotFound}
	}
	return r.single(ctx, x, t)
}

// unresolved is the answer to a request that asks for nothing that there is.
func unresolved(method string, err error) *wire.Error {
	switch {
	case errors.Is(err, resolve.ErrNoID):
		return failure.NoID
	case errors.Is(err, resolve.ErrName):
		return failure.UnknownOf(method)
	}
	return failure.NoMethod
}

// single serves a request on a route of one server, names as they are.
func (r *Relay) single(ctx context.Context, x *front.Exchange, t target) front.Reply {
	b := t.b
	switch x.Method {
	case "ping":
		return front.Reply{Result: rawjson.Empty}
	case "initialize":
		return r.initialize(ctx, x, b)
	case "server/discover":
		return r.discover(ctx, x, b)
	case "subscriptions/listen":
		return r.subscribe(ctx, x, []*backend{b})
	}
	return r.listOf(ctx, x, t)
}
