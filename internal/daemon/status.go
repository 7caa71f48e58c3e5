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

// paths are what is served beside MCP.
func (d *Daemon) paths() map[string]func(http.ResponseWriter, *http.Request, *principal.Principal) {
	paths := admin.Paths(admin.Options{Status: d.status, Enter: d.enterAdmin, Decide: d.decide, Policy: d.policyText, Measure: d.measure, Kept: d.checkpoints.answer,
		Trust: admin.Truster{List: func() []admin.Trust { return d.definitions.trust("") }, Look: d.definitions.look, Approve: d.definitions.approve}})
	d.addMailPaths(paths)
	paths["/auth/"] = d.authPaths
	return paths
}

// enterAdmin lets an administrative act through the gate. On TCP it is for
// loopback listeners alone.
func (d *Daemon) enterAdmin(r *http.Request, who *principal.Principal, what string) (leave func(), err error) {
	act := gate.Act{Who: who, Action: policy.ActionAdmin, Name: what, Kind: gate.Administration}
	o := listen.From(r.Context())
	if o == nil || !o.Listener.Local() {
		return nil, d.gate.Refuse(act, "default.admin-local", gate.CodeDenied, 0)
	}
	pass, err := d.gate.Enter(act)
	var refusal *gate.Refusal
	if what == "status" && errors.As(err, &refusal) && refusal.Code == gate.CodeUnavailable &&
		d.gate.Allows(policy.Request{Who: who, Action: policy.ActionAdmin, Name: what}).Allow {
		return func() {}, nil // a full disk must not hide that the disk is full
	}
	if err != nil {
		return nil, err
	}
	return func() { pass.Leave("ok", 0) }, nil
}

// status is the state of the daemon as `doorward status` shows it.
func (d *Daemon) status() admin.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := admin.Status{Version: d.o.Version, Ready: d.ready, Sessions: d.door.Sessions(), Servers: []admin.Server{}, Listeners: []admin.Listener{}}
	for _, l := range d.listeners {
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
	for _, r := range d.refused {
		s.Listeners = append(s.Listeners, admin.Listener{Network: r.Network, Addr: r.Addr, State: "refused", Reason: r.Reason})
	}
	children := d.runner.Children()
	for _, b := range d.relay.Status() {
		v := admin.Server{Name: b.Name, Kind: b.Kind, State: b.State, Era: b.Era, Instances: b.Instances, Withheld: d.definitions.withheld(b.Name), Reason: b.Reason}
		if v.Kind == relay.KindBuiltin && v.Reason == "" {
			if v.Reason = d.builtinTrouble(v.Name); v.Reason != "" {
				v.State = "unreachable"
			}
		}
		v.Unmatched = d.definitions.unmatched(d.policy.Load(), b.Name)
		d.describe(&v, children)
		if v.Kind == relay.KindBuiltin && v.Name == agent.ServerName && v.Reason == "" && d.o.Config.Agent.SiblingJoin != "off" {
			v.Reason = "sibling_join: " + d.o.Config.Agent.SiblingJoin
		}
		s.Servers = append(s.Servers, v)
	}
	sort.Slice(s.Servers, func(i, j int) bool { return s.Servers[i].Name < s.Servers[j].Name })
	failed := d.auth.Failures()
	s.Authentication = admin.Authentication{Missing: failed.Missing, Invalid: failed.Invalid, Limited: failed.Limited}
	a := d.audit.State()
	s.Audit = admin.Audit{Seq: a.Seq, State: a.State, Reason: a.Reason}
	if why := d.checkpoints.lacking.Load(); why != nil && a.State == audit.StateOK {
		s.Audit.State, s.Audit.Reason = "missing", *why
	}
	return s
}

// builtinTrouble is what keeps a server that is part of the daemon from working.
func (d *Daemon) builtinTrouble(name string) string {
	why := d.storeless.Load()
	if why == nil && name == deliver.ServerName {
		why = d.instructing.failed.Load()
	}
	if why == nil {
		return ""
	}
	return *why
}
