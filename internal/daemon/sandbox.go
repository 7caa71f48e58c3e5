package daemon

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/doorward/doorward/internal/admin"
	"github.com/doorward/doorward/internal/child"
	"github.com/doorward/doorward/internal/config"
	"github.com/doorward/doorward/internal/upstream"
)

// ownPaths are the files and directories that no contained server sees: what
// lies there makes whoever has it the daemon, or somebody else's principal.
func (d *Daemon) ownPaths() []string {
	c := d.o.Config
	own := []string{d.o.StateDir, d.o.RuntimeDir, AuditDir(d.o.StateDir, c), d.o.TokenFile, c.File, c.Instructions.Dir}
	if c.Listen.Unix != "auto" && c.Listen.Unix != "off" {
		own = append(own, c.Listen.Unix)
	}
	for _, l := range c.Listen.HTTP {
		if l.TLS != nil {
			own = append(own, l.TLS.Key)
		}
	}
	var all []string
	for _, path := range own {
		if abs, err := filepath.Abs(path); path != "" && err == nil {
			all = append(all, abs)
		}
	}
	return all
}

// sandboxOf says how a server is shut in.
func sandboxOf(s *config.Server) child.Sandbox {
	h := s.Doorward
	if s.Kind != upstream.KindStdio || h.Sandbox == child.Off || h.Sandbox == child.Contain && !child.CanContain {
		return child.Sandbox{}
	}
	box := child.Sandbox{Mode: h.Sandbox, Read: h.Read, Write: h.Write, Network: string(h.Network),
		Limits: child.Limits{Memory: int64(h.Limits.Memory), Processes: h.Limits.Processes, Files: h.Limits.Files}}
	if box.Ports = h.Network.Ports(); box.Ports != nil {
		box.Network = child.NetworkPorts
	}
	for _, a := range s.Args {
		box.Named = append(box.Named, pathsIn(a.Reveal())...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if name != "HOME" && name != "TMPDIR" { // these are where things go, not what is meant
			box.Named = append(box.Named, pathsIn(s.Env[name].Reveal())...)
		}
	}
	return box
}

// pathsIn is the path that a word of the configuration names: the operator who
// writes it there wants the server to find it.
func pathsIn(word string) []string {
	if !filepath.IsAbs(word) || word == "/" {
		return nil
	}
	return []string{filepath.Clean(word)}
}

// checkSandbox refuses a server that cannot be shut in as it is to be, and says
// so where somebody reads it: a server that is missing is noticed late.
func checkSandbox(deps upstream.Deps, def upstream.Definition) error {
	_, err := deps.Runner.Check(def.Sandbox)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w; make it possible, or set sandbox: off under doorward for this server, which then may do all that you may", err)
	deps.Log.Error("server refused", "server", def.Name, "reason", err)
	return err
}

// containment is how the servers of one configuration are shut in.
type containment map[string]child.Sandbox

func (set *serverSet) containment() *containment {
	all := make(containment, len(set.config.Servers))
	for name, s := range set.config.Servers {
		all[name] = sandboxOf(s)
	}
	return &all
}

// describe fills in how a server is shut in: by what was found out when it was
// configured, and for each of its processes by what holds there.
func (d *Daemon) describe(s *admin.Server, children []child.Child) {
	s.Sandbox, s.Containment, s.Processes = child.Off, []admin.Measure{}, []admin.Process{}
	if box := (*d.contained.Load())[s.Name]; box.Mode != "" {
		measures, err := d.runner.Check(box)
		s.Sandbox, s.Containment = child.Summary(box.Mode, measures), measuresOf(measures)
		if err != nil {
			s.Sandbox = box.Mode + " (refused)"
		}
	}
	for _, c := range children {
		if c.Server == s.Name {
			s.Processes = append(s.Processes, admin.Process{PID: c.PID, Sandbox: child.Summary(c.Mode, c.Measures),
				Containment: measuresOf(c.Measures)})
		}
	}
}

func measuresOf(from []child.Measure) []admin.Measure {
	all := make([]admin.Measure, 0, len(from))
	for _, m := range from {
		all = append(all, admin.Measure{Name: m.Name, State: m.State, Detail: m.Detail})
	}
	return all
}
