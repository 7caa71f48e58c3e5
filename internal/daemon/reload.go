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
	rules, err := d.compilePolicy(c)
	if err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	set, err := newServers(c, d.runner, d.log, d.o.Version, d.outward, d.servers, d.noteStderr)
	if err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	d.definitions.guard(set)
	restart := needRestart(d.o.Config, c)
	for _, s := range restart {
		d.log.Warn("this change needs a restart of the daemon", "key", s)
	}
	d.servers = set
	d.agents.set(c)
	d.contained.Store(set.containment())
	d.enforce(rules)
	d.relay.SetServers(d.withBuiltins(set.relay))
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

// messagingOf returns the part of the section agent that needs a restart.
func messagingOf(c *config.Config) config.Agent {
	a := c.Agent
	a.Launchers = nil
	return a
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
func needRestart(now, next *config.Config) []string {
	var out []string
	for _, s := range []struct {
		key  string
		a, b any
	}{
		{"listen", now.Listen, next.Listen}, {"audit", now.Audit, next.Audit}, {"limits", now.Limits, next.Limits},
		{"log", now.Log, next.Log}, {"approvals", now.Approvals, next.Approvals}, {"agent", messagingOf(now), messagingOf(next)}, {"oauth", now.OAuth, next.OAuth}, {"store", now.Store, next.Store},
		{"instructions", now.Instructions, next.Instructions}, {"telemetry", now.Telemetry, next.Telemetry},
		{"egress", proxyAtStart(now), proxyAtStart(next)},
	} {
		if !reflect.DeepEqual(s.a, s.b) {
			out = append(out, s.key)
		}
	}
	return out
}
