package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// openPins opens what was approved of the servers, and the content rules.
func (d *Daemon) openPins() error {
	book, err := pin.Open(pin.Options{Dir: PinsDir(d.o.StateDir), Log: d.log, Note: d.notePin})
	if err != nil {
		return err
	}
	d.pins = book
	d.onClose(book.Close)
	d.scans = scan.NewLibrary(d.patternsRead)
	return nil
}

// notePin records what happened to an offer.
func (d *Daemon) notePin(n pin.Note) {
	r := audit.Record{Kind: audit.Event, Source: "pin", Action: n.What, Resource: n.Server, Rule: n.Rule, Reason: n.Reason, Count: n.Count}
	if n.Item != "" {
		r.Resource += "/" + n.Item
	}
	if n.What == "pin.withheld" {
		r.Decision = audit.Deny
		d.log.Warn("withheld until it is approved with doorward trust", "server", n.Server, "item", n.Item, "rule", n.Rule)
	}
	d.audit.Later(&r)
}

// patternsRead is told when a pattern file has changed.
func (d *Daemon) patternsRead(path string, err error) {
	r := audit.Record{Kind: audit.Event, Source: "config", Action: "scan.reload", Result: "ok"}
	if err != nil {
		r.Result = "failed"
		d.log.Error("the pattern file was not read again: the rules of before stay", "file", path, "err", err)
	} else {
		d.log.Info("content rules reloaded", "file", path)
	}
	d.audit.Later(&r)
}

// guard puts every server of a set under its pin and its content rules. One
// whose rules cannot be had is refused.
func (d *Daemon) guard(set *serverSet) {
	names := []string{"agent", "instructions"}
	for i := range set.relay {
		r := &set.relay[i]
		names = append(names, r.Name)
		s := set.config.Servers[r.Name]
		if r.Refused != "" {
			continue
		}
		r.Pin = d.pins.Guard(r.Name, s.Doorward.Trust == "manual", processOf(s))
		scanner, err := d.scans.Scanner(scan.Mode(s.Doorward.Scan), PatternFile(set.config, s))
		if err != nil {
			r.Refused = "the content rules cannot be used: " + strings.ReplaceAll(err.Error(), "\n", "; ")
			continue
		}
		r.Scan = scanner
	}
	d.pins.SetServers(names)
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
	p := &pin.Process{Path: s.Path, Dir: s.Cwd}
	for _, a := range s.Args {
		p.Args = append(p.Args, a.Reveal())
	}
	for name := range s.Env {
		p.Env = append(p.Env, name)
	}
	return p
}

// withheld names what is withheld of a server.
func (d *Daemon) withheld(server string) []string {
	if items := d.pins.Items(server); items != nil {
		return items
	}
	return []string{}
}

// unmatched are the patterns of a server's deny list that deny nothing: its tools
// are known, and none of them is meant.
func (d *Daemon) unmatched(server string) []string {
	names := d.pins.Names(server, pin.Tools)
	if len(names) == 0 {
		return nil
	}
	return d.policy.Load().Unmatched(server, names)
}

// PinsDir is where the manifests of what was approved are.
func PinsDir(stateDir string) string { return filepath.Join(stateDir, "pins") }

// trust is what is withheld of one server, or of all.
func (d *Daemon) trust(server string) []admin.Trust {
	all := []admin.Trust{}
	for _, s := range d.relay.Status() {
		if server != "" && s.Name != server {
			continue
		}
		t := admin.Trust{Server: s.Name, Withheld: d.pins.Withheld(s.Name), Reason: s.Reason}
		if t.Withheld == nil {
			t.Withheld = []pin.Withheld{}
		}
		if server != "" || len(t.Withheld) > 0 {
			all = append(all, t)
		}
	}
	return append(all, d.launcherTrust(server)...)
}

// look asks a server for all it offers before what is withheld is shown.
func (d *Daemon) look(ctx context.Context, who *principal.Principal, server string) (admin.Trust, error) {
	if strings.HasPrefix(server, config.LauncherPrefix) {
		return d.lookAtLauncher(server)
	}
	err := d.relay.Look(ctx, who, server)
	if errors.Is(err, relay.ErrNoServer) {
		return admin.Trust{}, admin.ErrNotFound
	}
	if err != nil {
		d.log.Info("looking at what a server offers failed", "server", server, "err", err)
	}
	t := admin.Trust{Server: server, Withheld: []pin.Withheld{}}
	for _, found := range d.trust(server) {
		t = found
	}
	t.Unreached = err != nil
	return t, nil
}

// approve approves what was shown, in the name of who.
func (d *Daemon) approve(who *principal.Principal, server string, items []pin.Approval) error {
	err := d.pins.Approve(server, items)
	switch {
	case errors.Is(err, pin.ErrUnknown):
		return admin.ErrNotFound
	case errors.Is(err, pin.ErrStale):
		return admin.ErrStale
	case err != nil:
		d.log.Error("an approval could not be written down: nothing was approved", "server", server, "err", err)
		return err
	}
	for _, i := range items {
		d.audit.Later(&audit.Record{Kind: audit.Event, Source: "pin", Action: "trust.approve", Who: who,
			Resource: server + "/" + i.Item, Decision: audit.Allow, Reason: "sha256:" + i.Digest})
	}
	d.relay.Announce()
	return nil
}
