package daemon

import (
	"fmt"
	"reflect"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Reload applies the changes of c that a running daemon can take over: the servers, their
// rules, and the policy file. Unchanged servers keep their connections. A change that needs a
// restart is reported and not applied. c has been validated; an error means that nothing
// changed.
func (d *Daemon) Reload(c *config.Config) error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if err := takeOver(d, c); err != nil {
		NotReloaded(d, err.Error())
		return err
	}
	return nil
}

// NotReloaded keeps the reason why the configuration was not reloaded, for the status.
func NotReloaded(d *Daemon, reason string) { d.inForce.failed(reason) }

// takeOver makes the changes of a reload.
func takeOver(d *Daemon, c *config.Config) error {
	if err := d.places.check(); err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	restart := needRestart(d.o.Config, c)
	c = atStart(d.o.Config, c)
	rules, err := d.compilePolicy(c)
	if err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	set, err := newServers(c, d.runner, d.log, d.o.Version, d.outward, d.servers, d.noteStderr)
	if err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	d.definitions.guard(set)
	for _, s := range restart {
		d.log.Warn("this change needs a restart of the daemon", "key", s)
	}
	defer d.servers.close(set) // after the relay has ended their connections
	d.servers = set
	d.agents.set(c)
	d.contained.Store(set.containment())
	d.enforce(rules)
	d.relay.SetServers(d.withBuiltins(set.relay))
	d.approvals.Review()
	d.relay.Announce()
	d.warmth.again(c)
	if m := d.messaging.Load(); m != nil {
		m.server.PolicyChanged()
	}
	d.inForce.took(restart)
	d.audit.Later(&audit.Record{Kind: audit.Event, Source: "config", Action: "config.reload"})
	d.log.Info("configuration reloaded", "servers", len(set.relay))
	return nil
}

// enforce puts a policy in force. Texts that were composed under the one before are dropped at
// once, because the rest of a reload may take a while.
func (d *Daemon) enforce(r *rules) {
	d.policy.Store(r)
	d.gate.SetPolicy(r.set)
	d.instructing.server.Policy()
}

// atStart returns next with the sections of start that only a restart changes. The launchers in the
// section agent are those of next.
func atStart(start, next *config.Config) *config.Config {
	c := *next
	c.Listen, c.OAuth, c.Agent, c.Instructions, c.Audit = start.Listen, start.OAuth, start.Agent, start.Instructions, start.Audit
	c.Approvals, c.Store, c.Limits, c.Telemetry, c.Log = start.Approvals, start.Store, start.Limits, start.Telemetry, start.Log
	c.Agent.Launchers = next.Agent.Launchers
	return &c
}

// proxyAtStart returns the part of the section egress that needs a restart: the proxy, if
// anything but a server is reached through it.
func proxyAtStart(c *config.Config) string {
	if c.OAuth.Issuer == "" && c.Telemetry.OTLP == "" && c.Instructions.URL == "" && c.Approvals.Notify.Webhook.Empty() {
		return ""
	}
	return c.Egress.Proxy
}

// needRestart returns the changed sections that need a restart.
func needRestart(start, next *config.Config) []string {
	var out []string
	a, b := reflect.ValueOf(atStart(start, next)).Elem(), reflect.ValueOf(next).Elem()
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			out = append(out, a.Type().Field(i).Tag.Get("yaml"))
		}
	}
	if proxyAtStart(start) != proxyAtStart(next) {
		out = append(out, "egress")
	}
	return out
}
