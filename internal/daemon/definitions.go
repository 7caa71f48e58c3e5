package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// definitions judges what the servers offer: by pins, and by content rules.
type definitions struct {
	log    *slog.Logger
	audit  *audit.Log
	pins   *pin.Book
	scans  *scan.Library
	agents *agents
	relay  *relay.Relay
}

// note records what happened to an offer.
func (f *definitions) note(n pin.Note) {
	r := audit.Record{Kind: audit.Event, Source: "pin", Action: n.What, Resource: n.Server, Rule: n.Rule, Reason: n.Reason, Count: n.Count}
	if n.Item != "" {
		r.Resource += "/" + n.Item
	}
	if n.What == "pin.withheld" {
		r.Decision = audit.Deny
		f.log.Warn("withheld until it is approved with doorward trust", "server", n.Server, "item", n.Item, "rule", n.Rule)
	}
	f.audit.Later(&r)
}

// patternsRead is told when a pattern file has changed.
func (f *definitions) patternsRead(path string, err error) {
	r := audit.Record{Kind: audit.Event, Source: "config", Action: "scan.reload", Result: "ok"}
	if err != nil {
		r.Result = "failed"
		f.log.Error("the pattern file could not be reloaded: the previous rules remain in force", "file", path, "err", err)
	} else {
		f.log.Info("content rules reloaded", "file", path)
	}
	f.audit.Later(&r)
}

// guard puts every server of a set under its pin and its content rules. One
// whose rules cannot be had is refused.
func (f *definitions) guard(set *serverSet) {
	names := []string{"agent", "instructions"}
	for i := range set.relay {
		r := &set.relay[i]
		names = append(names, r.Name)
		s := set.config.Servers[r.Name]
		if r.Refused != "" {
			continue
		}
		r.Pin = f.pins.Guard(r.Name, s.Doorward.Trust == "manual", processOf(s))
		scanner, err := f.scans.Scanner(scan.Mode(s.Doorward.Scan), PatternFile(set.config, s))
		if err != nil {
			r.Refused = "the content rules cannot be used: " + strings.ReplaceAll(err.Error(), "\n", "; ")
			continue
		}
		r.Scan = scanner
	}
	f.pins.SetServers(names)
}

// PatternFile is where the content rules of a server stand, empty for the
// built-in ones.
func PatternFile(c *config.Config, s *config.Server) string {
	if s.Doorward.ScanPatterns != "" {
		return s.Doorward.ScanPatterns
	}
	return c.Scan.Patterns
}

// processOf is what is started for a server, nil for one over the network.
func processOf(s *config.Server) *pin.Process {
	if s.Kind != "stdio" {
		return nil
	}
	p := &pin.Process{Path: s.Path, Dir: s.Cwd, Args: revealed(s.Args), Shown: secret.Shown(revealed(s.Written)), Follow: true}
	p.Env = slices.Collect(maps.Keys(s.Env))
	return p
}

// withheld names what is withheld of a server.
func (f *definitions) withheld(server string) []string {
	if items := f.pins.Items(server); items != nil {
		return items
	}
	return []string{}
}

// unmatched are the patterns of a server's deny list that deny nothing: its tools
// are known, and none of them is meant.
func (f *definitions) unmatched(rules *policy.Set, server string) []string {
	names := f.pins.Names(server, pin.Tools)
	if len(names) == 0 {
		return nil
	}
	return policycheck.Unmatched(rules.Denied(server), names)
}

// PinsDir is where the manifests of what was approved are.
func PinsDir(stateDir string) string { return filepath.Join(stateDir, "pins") }

// trust is what is withheld of one server, or of all.
func (f *definitions) trust(server string) []admin.Trust {
	all := []admin.Trust{}
	for _, s := range f.relay.Status() {
		if server != "" && s.Name != server {
			continue
		}
		t := admin.Trust{Server: s.Name, Withheld: f.pins.Withheld(s.Name), Edited: f.pins.Edited(s.Name), Reason: s.Reason}
		if t.Withheld == nil {
			t.Withheld = []pin.Withheld{}
		}
		if server != "" || len(t.Withheld) > 0 {
			all = append(all, t)
		}
	}
	return append(all, f.agents.trust(server)...)
}

// look asks a server for all it offers before what is withheld is shown.
func (f *definitions) look(ctx context.Context, who *principal.Principal, server string) (admin.Trust, error) {
	if strings.HasPrefix(server, config.LauncherPrefix) {
		return f.agents.lookAt(server)
	}
	err := f.relay.Look(ctx, who, server)
	if errors.Is(err, relay.ErrNoServer) {
		return admin.Trust{}, admin.ErrNotFound
	}
	if err != nil {
		f.log.Info("listing what a server offers failed", "server", server, "err", err)
	}
	t := admin.Trust{Server: server, Withheld: []pin.Withheld{}}
	for _, found := range f.trust(server) {
		t = found
	}
	t.Unreached = err != nil
	return t, nil
}

// approve approves what was shown, in the name of who.
func (f *definitions) approve(who *principal.Principal, server string, items []pin.Approval) error {
	err := f.pins.Approve(server, items)
	switch {
	case errors.Is(err, pin.ErrUnknown):
		return admin.ErrNotFound
	case errors.Is(err, pin.ErrStale):
		return admin.ErrStale
	case err != nil:
		f.log.Error("an approval could not be stored: nothing was approved", "server", server, "err", err)
		return err
	}
	for _, i := range items {
		f.audit.Later(&audit.Record{Kind: audit.Event, Source: "pin", Action: "trust.approve", Who: who,
			Resource: server + "/" + i.Item, Decision: audit.Allow, Reason: "sha256:" + i.Digest})
	}
	f.relay.Announce()
	return nil
}
