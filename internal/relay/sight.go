package relay

import (
	"strings"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// sight decides which servers and resources a caller may see.
type sight struct {
	gate  *gate.Gate
	table *atomic.Pointer[table]
}

func (s *sight) visible(who *principal.Principal, server string) bool {
	if !s.gate.Allows(policy.Request{Who: who, Action: "initialize", Server: server}).Allow {
		return false
	}
	b := s.table.Load().byName[server]
	if b == nil || b.Needs == "" {
		return true
	}
	for need := range strings.FieldsSeq(b.Needs) {
		if s.gate.Allows(policy.Request{Who: who, Action: need, Listing: true}).Allow {
			return true
		}
	}
	return false
}

// onRoute reports whether a client of a route is offered what the server has.
func (s *sight) onRoute(who *principal.Principal, route, server string) bool {
	return (route == "" || route == server) && s.visible(who, server)
}

// servers returns the servers that a principal may see, sorted by name.
func (s *sight) servers(who *principal.Principal) []*backend {
	t := s.table.Load()
	out := make([]*backend, 0, len(t.sorted))
	for _, b := range t.sorted {
		if b.Refused == "" && s.visible(who, b.Name) {
			out = append(out, b)
		}
	}
	return out
}

// shut reports whether a caller is told that a server exists but is closed to callers from
// its place. That reveals nothing, because every installation has the server.
func (s *sight) shut(who *principal.Principal, b *backend) bool {
	return b.Builtin != nil && s.gate.Allows(policy.Request{Who: who, Action: "initialize", Server: b.Name}).Rule == policy.RuleNoMessaging
}

func (s *sight) mayRead(who *principal.Principal, b *backend, uri string, same bool) policy.Decision {
	return s.gate.Allows(policy.Request{Who: who, Action: "resources/read", Server: b.Name, Name: uri, SameProgram: same})
}

// mayHear asks policy again when an event is delivered: it may have changed since the client
// began to listen.
func (s *sight) mayHear(who *principal.Principal, b *backend, e upstream.Event, same bool) bool {
	switch e.Method {
	case protocol.ResourceUpdated:
		uri, _ := rawjson.GetString(e.Params, "uri")
		return s.mayRead(who, b, uri, same).Allow
	case protocol.TaskChanged, protocol.TaskStatus: // it has what the answer to tasks/get has
		return s.gate.Allows(policy.Request{Who: who, Action: "tasks/get", Server: b.Name, SameProgram: same}).Allow
	}
	return s.visible(who, b.Name)
}

// listens decides and records whether a caller receives the changes of a resource; nil: it does.
func (s *sight) listens(b *backend, act gate.Act) error {
	act.Kind = gate.Stream
	if d := s.mayRead(act.Who, b, act.Name, act.SameProgram); !d.Allow {
		return s.gate.Refuse(act, d.Rule, gate.CodeDenied, 0)
	}
	if b.Pin != nil {
		if why := offer.Resource(b.Pin, act.Name); why != "" {
			return s.gate.Refuse(act, why.Rule(), gate.CodeDenied, 0)
		}
	}
	pass, err := s.gate.Enter(act)
	if err == nil {
		pass.Leave("ok", 0)
	}
	return err
}
