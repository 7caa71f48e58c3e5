package relay

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

// house is a relay behind the real door on a real socket, with a real gate and
// audit log. The header Who picks the principal, as authentication would.
type house struct {
	t      *testing.T
	relay  *Relay
	door   *front.Door
	gate   *gate.Gate
	log    *audit.Log
	seal   *seal.Sealer
	dir    string
	url    string
	unix   string // the socket that serves it too; "" until one is asked for
	rules  map[string]policy.ServerRules
	limits gate.Limits
	keeper front.Keeper // nil: sessions end with the house
}

// option changes how a house is built.
type option func(*house, *Options)

// withRules sets a server's own lists.
func withRules(server string, tools, ask policy.List) option {
	return func(h *house, _ *Options) { h.rules[server] = policy.ServerRules{Tools: tools, Ask: ask} }
}

var (
	everyTool   = policy.List{Allow: []string{"*"}}
	elicitation = policy.List{Allow: []string{"elicitation"}}
	askAll      = policy.List{Allow: []string{"*"}}
)

// build opens a house for the servers; every tool is allowed and elicitation
// passes, as in a configuration that says nothing.
func build(t *testing.T, servers []Server, change ...option) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), rules: make(map[string]policy.ServerRules)}
	for _, s := range servers {
		h.rules[s.Name] = policy.ServerRules{Tools: everyTool, Ask: elicitation}
	}
	o := Options{Servers: servers, Log: slog.New(slog.DiscardHandler), Version: "test"}
	for _, f := range change {
		f(h, &o)
	}
	var err error
	if h.log, err = audit.Open(h.dir, audit.Options{}); err != nil {
		t.Fatal(err)
	}
	if h.seal, err = seal.New(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	h.gate = gate.New(policytest.New(t, 1000, h.rules), h.log, h.limits)
	o.Gate, o.Seal = h.gate, h.seal
	h.relay = New(o)
	h.door = front.New(front.Options{Handler: h.relay, Screen: func(*http.Request) bool { return true }, Authenticate: authenticate,
		Delivery: func(r *http.Request, _ *principal.Principal) (string, error) {
			return r.Header.Get("Doorward-Session"), nil
		},
		Refused: func(*http.Request, int, error) {}, BodyBytes: 1 << 20, Keeper: h.keeper, Sessions: 500, SessionsPerPrincipal: 200, IdleSession: time.Hour})
	srv := httptest.NewServer(h.door)
	h.url = srv.URL
	t.Cleanup(func() { h.end(srv) })
	return h
}

func authenticate(r *http.Request) (*principal.Principal, error) {
	name := r.Header.Get("Who")
	if name == "" {
		name = "uid:1000"
	}
	var facts []principal.Fact
	if scope := r.Header.Get("Scope"); scope != "" {
		facts = append(facts, principal.Fact{Name: "scope", Value: scope, Grade: principal.Verified})
	}
	who := principal.New(name, facts...)
	if !who.Valid() {
		return nil, errors.New("nobody")
	}
	return who, nil
}

// end closes the house in the order of the daemon. It checks for every test
// that each allowed act has one outcome and that nothing stays open.
func (h *house) end(srv *httptest.Server) {
	h.door.Close()
	h.relay.Close()
	srv.CloseClientConnections()
	srv.Close()
	eventually(h.t, "every allowed act has one outcome", func() bool { return h.unsettled() == 0 })
	for _, b := range h.relay.table.Load().sorted {
		eventually(h.t, "server "+b.Name+" has no connection, call or start left", func() bool {
			b.mu.Lock()
			starts := b.starts
			b.mu.Unlock()
			return b.instances() == 0 && b.traffic.active.Load() == 0 && starts == 0
		})
	}
	if err := h.log.Close(); err != nil {
		h.t.Error(err)
	}
	if r, err := auditlog.Verify(h.dir, nil); err != nil || !r.OK {
		h.t.Errorf("the audit log does not verify: %+v %v", r, err)
	}
}

// record is what the tests look at of a line of the audit log.
type record struct {
	Seq                                uint64
	Kind, Source, Principal, Session   string
	Action, Resource, Decision, Result string
	Rule                               string
	Ref                                uint64
	Bytes, Count                       int64
	Detail                             map[string]string
}

func (h *house) records() []record {
	h.t.Helper()
	raw, err := auditlog.Tail(h.dir, 1_000_000)
	if err != nil {
		h.t.Fatal(err)
	}
	var out []record
	for _, line := range raw {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			h.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// unsettled counts the allowed acts without an outcome, and reports outcomes
// of no act.
func (h *house) unsettled() int {
	open := make(map[uint64]record)
	for _, r := range h.records() {
		switch {
		case r.Action == "clerk.who": // complete in itself
		case r.Kind == audit.Decision && r.Decision == audit.Allow:
			open[r.Seq] = r
		case r.Kind == audit.Outcome:
			d, known := open[r.Ref]
			if !known || d.Action != r.Action || d.Resource != r.Resource || d.Principal != r.Principal {
				h.t.Errorf("an outcome of no open act: %+v (%+v)", r, d)
			}
			delete(open, r.Ref)
		}
	}
	return len(open)
}

// recorded waits for a record that match accepts.
func (h *house) recorded(what string, match func(record) bool) record {
	h.t.Helper()
	var found record
	eventually(h.t, "a record: "+what, func() bool {
		for _, r := range h.records() {
			if match(r) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// decided waits for the decision about an action on a resource.
func (h *house) decided(action, resource string) record {
	h.t.Helper()
	return h.recorded(action+" "+resource, func(r record) bool {
		return r.Kind == audit.Decision && r.Action == action && r.Resource == resource
	})
}

// outcome waits for how a decided act ended.
func (h *house) outcome(d record) string {
	h.t.Helper()
	return h.recorded("outcome", func(r record) bool { return r.Kind == audit.Outcome && r.Ref == d.Seq }).Result
}

// count is how many decisions there are about an action on a resource.
func (h *house) count(action, resource string) int {
	n := 0
	for _, r := range h.records() {
		if r.Kind == audit.Decision && r.Action == action && r.Resource == resource {
			n++
		}
	}
	return n
}

func exchangeOf(who string) *front.Exchange { return &front.Exchange{Who: principal.New(who)} }

// sessionOf is the door's side of a client's only session.
func (h *house) sessionOf(*session) (found *front.Session) {
	h.door.Each(func(s *front.Session) bool { found = s; return false })
	return found
}
