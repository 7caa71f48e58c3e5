package relay

import (
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
)

// target is a request to one server, with the server's own names.
type target struct {
	resolve.Target
	b     *backend          // the server's
	with  *gate.Charge      // the charge that this request shares with others; nil: its own
	found *content.Findings // what content rules met; nil: the server is not scanned
	// continues: it was let in as the continuation of a parked call and may only continue
	// one.
	continues bool
	back      bool      // its client comes back from the operator's approval page
	shelf     *shelving // collects the answer of a list for reuse; nil: not kept
}

// aim finds the server of a resolved request; false: there is none.
func (t *table) aim(asked resolve.Target) (target, bool) {
	b := t.byName[asked.Server()]
	return target{Target: asked, b: b}, b != nil
}

// acts describes the acts of callers for the gate.
type acts struct {
	own   func(string) bool // reports the names of the daemon's own user; nil: there are none
	table *atomic.Pointer[table]
}

// of returns the act of an exchange on a server.
func (d *acts) of(x *front.Exchange, server, action, name string) (a gate.Act) {
	describe(&a, x, server, action, name)
	if b := d.table.Load().byName[server]; b != nil {
		a.Source = b.Source
	}
	return a
}

// describe fills in the act of an exchange on a server, except the source.
func describe(a *gate.Act, x *front.Exchange, server, action, name string) {
	a.Who, a.Action, a.Server, a.Name = x.Who, action, server, name
	a.Bytes, a.SameProgram, a.Delivery = x.Size, x.SameProgram, x.Delivery
	if x.Session != nil {
		a.Session = x.Session.Digest
	}
}

// act fills in the act of an exchange on t.
func (t *target) act(a *gate.Act, x *front.Exchange) {
	describe(a, x, t.Server(), t.Method(), t.Name())
	a.Source = t.b.Source
}

// on returns the act of an exchange on a resolved target.
func (d *acts) on(x *front.Exchange, t resolve.Target) gate.Act {
	return d.of(x, t.Server(), t.Method(), t.Name())
}

// counted fills in the act with its arguments and its charge. The server's limit is checked
// here, so that a refusal has one record. A call takes a place only after it is let in, so a
// refused call takes none.
func (d *acts) counted(act *gate.Act, x *front.Exchange, t *target) {
	t.act(act, x)
	act.Args, act.With = argsOf(t), t.with
	if t.b.traffic.full(t.b.MaxConcurrency) && !t.b.spares(d.own, x.Who) {
		act.Over = failure.CapOf(t.b.Name, "max_concurrency")
	}
}

// argsOf returns the arguments that a decision may depend on.
func argsOf(t *target) []byte {
	if t.Method() == "tools/call" || t.Method() == "prompts/get" {
		return rawjson.Get(t.Params(), "arguments")
	}
	return nil
}
