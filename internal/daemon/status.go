package daemon

import (
	"context"
	"errors"
	"net/http"
	"sort"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
)

// paths returns the routes other than MCP.
func (a api) paths() map[string]func(http.ResponseWriter, *http.Request, *principal.Principal) {
	paths := admin.Paths(admin.Options{Status: a.status, Enter: a.enterAdmin, Decide: a.decide, Policy: a.policyText, Metrics: a.d.metrics, Kept: a.d.checkpoints.answer, Prune: a.d.retention.order,
		Trust:    admin.Truster{List: func() []admin.Trust { return a.d.definitions.trust("") }, Look: a.d.definitions.look, Approve: a.d.definitions.approve, Person: a.mayTrust},
		UI:       admin.UI{Open: a.openUI, SignOut: a.signOutUI, Above: above},
		Approver: a.approver(),
		Control:  admin.Control{Restart: a.restartServer, Stop: a.stopStarted}})
	a.addMailPaths(paths)
	paths["/auth/"] = a.d.instructing.server.Serve
	return paths
}

// enterAdmin passes an administrative act through the gate. It has to come from this machine.
func (a api) enterAdmin(r *http.Request, who *principal.Principal, what string) (leave func(), err error) {
	act := gate.Act{Who: who, Action: policy.ActionAdmin, Name: what, Kind: gate.Administration}
	if !overLocal(r) {
		return nil, a.d.gate.Refuse(act, "default.admin-local", gate.CodeDenied, 0)
	}
	pass, err := a.d.gate.Enter(act)
	var refusal *gate.Refusal
	if (what == "status" || what == "metrics") && errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable &&
		a.d.gate.Allows(policy.Request{Who: who, Action: policy.ActionAdmin, Name: what}).Allow {
		return func() {}, nil // these two must work when the disk is full, to report it
	}
	if err != nil {
		return nil, err
	}
	return func() { pass.Leave("ok", 0) }, nil
}

// status returns the state of the daemon for `doorward status`.
func (a api) status() admin.Status {
	a.d.listeners.mu.Lock()
	defer a.d.listeners.mu.Unlock()
	s := admin.Status{Version: a.d.o.Version, Ready: a.d.listeners.ready, Sessions: a.d.door.Sessions(), Servers: []admin.Server{}, Listeners: []admin.Listener{}, Configuration: a.d.inForce.shown(a.d.o.Config.File)}
	credential := Credential(a.d.callers.auth, a.d.o.Config)
	for _, l := range a.d.listeners.open {
		auth := "none"
		if l.AuthEnforced {
			auth = "token"
		}
		if l.Network == "unix" {
			auth = "peer"
		}
		s.Listeners = append(s.Listeners, admin.Listener{Network: l.Network, Addr: l.Addr(), State: "listening",
			Auth: auth, TLS: l.TLS, Reason: listen.Warning(l, credential), Refused: l.Refused()})
	}
	for _, r := range a.d.listeners.refused {
		s.Listeners = append(s.Listeners, admin.Listener{Network: r.Network, Addr: r.Addr, State: "refused", Reason: r.Reason})
	}
	children := a.d.runner.Children()
	for _, b := range a.d.relay.Status() {
		v := admin.Server{Name: b.Name, Kind: b.Kind, State: b.State, Era: b.Era, Instances: b.Instances, Withheld: a.d.definitions.withheld(b.Name), Reason: b.Reason, Stderr: b.Stderr, Ended: b.Ended}
		if v.Kind == relay.KindBuiltin && v.Reason == "" {
			if v.Reason = a.builtinTrouble(v.Name); v.Reason != "" {
				v.State = relay.Failing
			}
		}
		if v.Name == deliver.ServerName {
			v.Problems = a.d.instructing.problems()
		}
		v.Unmatched = a.d.definitions.unmatched(a.d.policy.Load().set, b.Name)
		a.describe(&v, children)
		if v.Kind == relay.KindBuiltin && v.Name == agent.ServerName && v.Reason == "" && a.d.o.Config.Agent.SiblingJoin != "off" {
			v.Reason = "sibling_join: " + a.d.o.Config.Agent.SiblingJoin
		}
		s.Servers = append(s.Servers, v)
	}
	sort.Slice(s.Servers, func(i, j int) bool { return s.Servers[i].Name < s.Servers[j].Name })
	failed := a.d.callers.auth.Failures()
	s.Authentication = admin.Authentication{Missing: failed.Missing, Invalid: failed.Invalid, Limited: failed.Limited}
	if o := a.d.issuer.oauth; o != nil {
		s.Authentication.Issuer = o.Trouble()
	}
	log := a.d.audit.State()
	s.Audit = admin.Audit{Seq: log.Seq, State: log.State, Reason: log.Reason}
	if why := a.d.checkpoints.lacking.Load(); why != nil && log.State == audit.StateOK {
		s.Audit.State, s.Audit.Reason = "missing", *why
	}
	return s
}

// builtinTrouble returns the reason why a built-in server cannot work; empty: none.
func (a api) builtinTrouble(name string) string {
	why := a.d.storeless.Load()
	if why == nil && name == deliver.ServerName {
		why = a.d.instructing.undelivered()
	}
	if why != nil {
		return *why
	}
	if db := a.d.database.Load(); db != nil {
		if err := db.Trouble(); err != nil {
			return unusable + err.Error()
		}
	}
	return ""
}

// mailPaths returns the operator's routes of a messaging server.
func (a api) mailPaths(s *agent.Server) map[string]func(http.ResponseWriter, *http.Request, *principal.Principal) {
	return admin.Paths(admin.Options{Enter: a.enterAdmin, Messaging: admin.Messaging{Agents: s.Operator(), Above: above, Person: a.mustBePerson, Holds: a.d.callers.auth.Holds,
		Hook: func(ctx context.Context, who *principal.Principal, processes []string) (agent.HookCounts, error) {
			return s.Hook(ctx, who, "", processes)
		}}})
}

// addMailPaths adds the operator's routes of messaging. While the database is unavailable
// they answer 503.
func (a api) addMailPaths(paths map[string]func(http.ResponseWriter, *http.Request, *principal.Principal)) {
	if !a.d.o.Config.Agent.Enabled {
		return
	}
	for path := range a.mailPaths(nil) {
		if paths[path] != nil {
			continue
		}
		paths[path] = func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
			m := a.d.messaging.Load()
			if m == nil {
				w.Header().Set("Retry-After", strconv.Itoa(int(retryTime/time.Second)))
				admin.StoreUnavailable(w)
				return
			}
			m.paths[path](w, r, who)
		}
	}
}

// refusals returns the numbers of refusals of the gate by the names of their classes.
func (a api) refusals() map[string]uint64 {
	policy, rate, limit, turned := a.d.gate.Refusals()
	return map[string]uint64{"policy": policy, "rate": rate, "limit": limit, "turned": turned}
}

// measure returns the figures for /metrics beside the status.
func (a api) measure(ctx context.Context) admin.Measures {
	out := admin.Measures{Messaging: a.d.o.Config.Agent.Enabled, Refused: a.refusals(), Instructions: a.d.instructing.measure()}
	m := a.d.messaging.Load()
	if m == nil {
		return out
	}
	all, err := m.server.Measure(ctx)
	if err != nil {
		a.d.log.Warn("the metrics of messaging could not be read", "err", err)
		return out
	}
	out.Agent = &admin.AgentMeasures{Accepted: all.Accepted, States: all.States, Peers: all.Peers, Waits: all.Waits, Sends: all.Sends}
	return out
}

// describe fills in how a server is contained: by a check of its configured sandbox, and for
// each of its processes by the measures in force there.
func (a api) describe(s *admin.Server, children []process.Child) {
	s.Sandbox, s.Containment, s.Processes = process.Off, []admin.Measure{}, []admin.Process{}
	if in := (*a.d.contained.Load())[s.Name]; in.box.Mode != "" {
		box := in.box
		s.Unseen = a.d.unseen.of(s.Name, in.server, box)
		measures, err := a.d.runner.Check(box)
		s.Sandbox, s.Containment = process.Summary(box.Mode, measures), measuresOf(measures)
		if err != nil {
			s.Sandbox = box.Mode + " (refused)"
		}
	}
	for _, c := range children {
		if c.Server == s.Name {
			s.Processes = append(s.Processes, admin.Process{PID: c.PID, Sandbox: process.Summary(c.Mode, c.Measures),
				Containment: measuresOf(c.Measures)})
		}
	}
}

func measuresOf(from []process.Measure) []admin.Measure {
	all := make([]admin.Measure, 0, len(from))
	for _, m := range from {
		all = append(all, admin.Measure{Name: m.Name, State: m.State, Detail: m.Detail})
	}
	return all
}
