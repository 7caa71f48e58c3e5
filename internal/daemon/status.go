package daemon

import (
	"errors"
	"net/http"
	"sort"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// api answers the requests that are served beside MCP: the state of the daemon,
// and what the operator asks and changes.
type api struct{ d *Daemon }

// paths are what is served beside MCP.
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

// enterAdmin lets an administrative act through the gate. On TCP it is for
// loopback listeners alone.
func (a api) enterAdmin(r *http.Request, who *principal.Principal, what string) (leave func(), err error) {
	act := gate.Act{Who: who, Action: policy.ActionAdmin, Name: what, Kind: gate.Administration}
	o := listen.From(r.Context())
	if o == nil || !o.Listener.Local() {
		return nil, a.d.gate.Refuse(act, "default.admin-local", gate.CodeDenied, 0)
	}
	pass, err := a.d.gate.Enter(act)
	var refusal *gate.Refusal
	if what == "status" && errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable &&
		a.d.gate.Allows(policy.Request{Who: who, Action: policy.ActionAdmin, Name: what}).Allow {
		return func() {}, nil // a full disk must not hide that the disk is full
	}
	if err != nil {
		return nil, err
	}
	return func() { pass.Leave("ok", 0) }, nil
}

// status is the state of the daemon as `doorward status` shows it.
func (a api) status() admin.Status {
	a.d.listeners.mu.Lock()
	defer a.d.listeners.mu.Unlock()
	s := admin.Status{Version: a.d.o.Version, Ready: a.d.listeners.ready, Sessions: a.d.door.Sessions(), Servers: []admin.Server{}, Listeners: []admin.Listener{}}
	for _, l := range a.d.listeners.open {
		auth := "none"
		if l.AuthEnforced {
			auth = "token"
		}
		if l.Network == "unix" {
			auth = "peer"
		}
		s.Listeners = append(s.Listeners, admin.Listener{Network: l.Network, Addr: l.Addr(), State: "listening",
			Auth: auth, TLS: l.TLS, Reason: l.Warning, Refused: l.Refused()})
	}
	for _, r := range a.d.listeners.refused {
		s.Listeners = append(s.Listeners, admin.Listener{Network: r.Network, Addr: r.Addr, State: "refused", Reason: r.Reason})
	}
	children := a.d.runner.Children()
	for _, b := range a.d.relay.Status() {
		v := admin.Server{Name: b.Name, Kind: b.Kind, State: b.State, Era: b.Era, Instances: b.Instances, Withheld: a.d.definitions.withheld(b.Name), Reason: b.Reason, Stderr: b.Stderr}
		if v.Kind == relay.KindBuiltin && v.Reason == "" {
			if v.Reason = a.builtinTrouble(v.Name); v.Reason != "" {
				v.State = relay.Failing
			}
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
	log := a.d.audit.State()
	s.Audit = admin.Audit{Seq: log.Seq, State: log.State, Reason: log.Reason}
	if why := a.d.checkpoints.lacking.Load(); why != nil && log.State == audit.StateOK {
		s.Audit.State, s.Audit.Reason = "missing", *why
	}
	return s
}

// builtinTrouble is what keeps a server that is part of the daemon from working.
func (a api) builtinTrouble(name string) string {
	why := a.d.storeless.Load()
	if why == nil && name == deliver.ServerName {
		why = a.d.instructing.failed.Load()
	}
	if why == nil {
		return ""
	}
	return *why
}
