package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// checks remembers what was found out about this system.
type checks struct {
	mu    sync.Mutex
	known map[string]checked
}

type checked struct {
	measures []Measure
	err      error
}

// Check reports what would hold of a sandbox, by building it without starting a server. An error wraps ErrNotContained:
// a server with this sandbox cannot be started. It wraps ErrOwnGranted too if the sandbox names what is hidden from every
// server. What is available is found out once; what is missing is tried again at each call.
func (r *Runner) Check(s Sandbox) ([]Measure, error) {
	if s.off() {
		return nil, nil
	}
	if err := r.ownGranted(s); err != nil {
		return nil, err
	}
	s.Named, s.Listed, s.Own, s.Home = nil, nil, nil, "" // what a server names changes nothing about the system
	p := r.plan(Spec{Sandbox: s, Path: "/"})
	p.Probe, p.Shared = true, nil
	p.Cgroup = r.groups != nil
	key := p.String()
	r.checks.mu.Lock()
	defer r.checks.mu.Unlock()
	c, known := r.checks.known[key]
	if !known || c.err != nil {
		c.measures, c.err = r.probe(p)
		if r.checks.known == nil {
			r.checks.known = map[string]checked{}
		}
		r.checks.known[key] = c
	}
	return c.measures, c.err
}

// ownGranted returns an error if a sandbox names a path at or below one that no server sees. A path above one is granted
// without it.
func (r *Runner) ownGranted(s Sandbox) error {
	for _, path := range slices.Concat(s.Read, s.Write, s.Named) {
		for _, own := range r.o.Hide {
			if path = resolved(path); path == resolved(own) || below(path, resolved(own)) {
				return fmt.Errorf("%w: %w: %s", ErrNotContained, ErrOwnGranted, path)
			}
		}
	}
	return nil
}

// resolved follows the links in a path, as far as it exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}

// below tells whether path lies in dir, and is not dir itself.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && len(rest) > 1 && rest[0] == '/'
}

// plan says how a server is contained; nil: not at all.
func (r *Runner) plan(s Spec) *plan {
	if s.Sandbox.off() {
		return nil
	}
	p := &plan{Sandbox: s.Sandbox, Dir: s.Dir, Fixed: s.Folder != nil, Homes: r.o.Homes}
	p.Hide = slices.Concat(r.o.Hide, s.Sandbox.Hide)
	if shared := r.shared.Load(); shared != nil {
		p.Shared = *shared
	}
	if p.Home != "" {
		p.Home = filepath.Join(r.o.Private, p.Home)
	}
	return p
}

// ownHome is the default of Options.Homes.
func ownHome() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	return []string{home}
}
