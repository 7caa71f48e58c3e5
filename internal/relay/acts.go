package relay

import (
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// target is what is asked of one server, in that server's own names.
type target struct {
	resolve.Target
	b     *backend          // of the Target's server
	with  *gate.Charge      // what it counts as one call with; nil: nothing
	found *content.Findings // what content rules met; nil: nobody looks
	// continues: it was let in as the continuation of a parked call, and is nothing else.
	continues bool
	back      bool      // its client has been to the operator's page
	shelf     *shelving // of a merged list: the answer as it may be used again; nil: it is not
}

// aim finds the server of what was resolved; false when there is none.
func (t *table) aim(asked resolve.Target) (target, bool) {
	b := t.byName[asked.Server()]
	return target{Target: asked, b: b}, b != nil
}

// acts describes what callers ask of servers, for the gate.
type acts struct {
	own   func(string) bool // the names of the daemon's own user; nil: there are none
	table *atomic.Pointer[table]
}

// of is what an exchange asks of a server.
func (d *acts) of(x *front.Exchange, server, action, name string) gate.Act {
	a := gate.Act{Who: x.Who, Action: action, Server: server, Name: name, Bytes: x.Size, Confirmed: x.Confirmed, Delivery: x.Delivery}
	if b := d.table.Load().byName[server]; b != nil {
		a.Source = b.Source
	}
	if x.Session != nil {
		a.Session = x.Session.Digest
	}
	return a
}

// on is of for what was resolved.
func (d *acts) on(x *front.Exchange, t resolve.Target) gate.Act {
	return d.of(x, t.Server(), t.Method(), t.Name())
}

// counted is the act with what it is decided and counted by. The server's limit is
// checked here, so that a refusal has one record, and a call is counted only once it is
// let in, so that a refused call takes no place.
func (d *acts) counted(x *front.Exchange, t target) gate.Act {
	act := d.on(x, t.Target)
	act.Args, act.With = argsOf(t), t.with
	if t.b.traffic.full(t.b.MaxConcurrency) && !t.b.spares(d.own, x.Who) {
		act.Over = failure.CapOf(t.b.Name, "max_concurrency")
	}
	return act
}

// argsOf are the arguments that a decision may depend on.
func argsOf(t target) []byte {
	if t.Method() == "tools/call" || t.Method() == "prompts/get" {
		return wire.Get(t.Params(), "arguments")
	}
	return nil
}
