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

// definitions checks the offers of the servers by pins and content rules.
type definitions struct {
	log    *slog.Logger
	audit  *audit.Log
	pins   *pin.Book
	scans  *scan.Library
	agents *agents
	relay  *relay.Relay
}

// note records an event about an offer.
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

// patternsRead logs and records the reload of a pattern file.
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

// guard gives every server of a set its pin and its content rules. A server whose rules
// cannot be loaded is refused.
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

// PatternFile returns the file of the content rules of a server, empty for the built-in ones.
func PatternFile(c *config.Config, s *config.Server) string {
	if s.Doorward.ScanPatterns != "" {
		return s.Doorward.ScanPatterns
	}
	return c.Scan.Patterns
}

// processOf describes the process of a server; nil: the server is reached over the network.
func processOf(s *config.Server) *pin.Process {
	if s.Kind != "stdio" {
		return nil
	}
	p := &pin.Process{Path: s.Path, Dir: s.Cwd, Args: revealed(s.Args), Shown: secret.Shown(revealed(s.Written)), Follow: true}
	p.Env = slices.Collect(maps.Keys(s.Env))
	return p
}

// withheld returns the names of the withheld items of a server.
func (f *definitions) withheld(server string) []string {
	if items := f.pins.Items(server); items != nil {
		return items
	}
	return []string{}
}

// unmatched returns the patterns of a server's deny list that match none of its known tools.
// If no tools are known, it returns nil.
func (f *definitions) unmatched(rules *policy.Set, server string) []string {
	names := f.pins.Names(server, pin.Tools)
	if len(names) == 0 {
		return nil
	}
	return policycheck.Unmatched(rules.Denied(server), names)
}

// PinsDir returns the directory of the manifests of approved definitions.
func PinsDir(stateDir string) string { return filepath.Join(stateDir, "pins") }

// trust returns what is withheld of one server, or of all.
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

// look lists the whole offer of a server and returns what is withheld of it.
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

// approve approves the shown items and records that in the name of who.
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
	f.relay.AnnounceOf(server)
	return nil
}
