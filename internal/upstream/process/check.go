package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// answerPatience bounds how long the file system of a granted path may take to answer. It is shorter than
// reportPatience, so that the daemon learns which path it was.
const answerPatience = 10 * time.Second

// checks caches the results of Runner.Check.
type checks struct {
	mu      sync.Mutex
	known   map[string]checked
	lookups Lookups
}

type checked struct {
	measures []Measure
	err      error
}

// Check reports which measures of a sandbox would hold, by building it without starting a server. An error wraps
// ErrNotContained: a server with this sandbox cannot be started. It wraps ErrOwnGranted too if the sandbox names a
// path that is hidden from every server. A success is cached; after a failure each call tries again.
func (r *Runner) Check(s Sandbox) ([]Measure, error) {
	if s.off() {
		return nil, nil
	}
	if err := r.ownGranted(s); err != nil {
		return nil, err
	}
	s.Named, s.Listed, s.Own, s.Home = nil, nil, nil, "" // the paths that a server names do not change the result
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

// ownGranted returns an error if a sandbox names a path at or below one of Options.Hide. A path above one can be
// granted; the hidden one stays hidden.
func (r *Runner) ownGranted(s Sandbox) error {
	var err error
	paths := slices.Concat(s.Read, s.Write, s.Named)
	if !r.checks.lookups.Do(strings.Join(paths, "\x00"), answerPatience, func() { err = r.ownAmong(paths) }) {
		return fmt.Errorf("%w: one of its paths does not answer for %s: the file system hangs; mount it again, or do not grant it", ErrNotContained, answerPatience)
	}
	return err
}

func (r *Runner) ownAmong(paths []string) error {
	for _, path := range paths {
		if path = resolved(path); r.hides(path) {
			return fmt.Errorf("%w: %w: %s", ErrNotContained, ErrOwnGranted, path)
		}
	}
	return nil
}

// hides reports whether a resolved path is at or below one of Options.Hide.
func (r *Runner) hides(path string) bool {
	return slices.ContainsFunc(r.o.Hide, func(own string) bool { return path == resolved(own) || below(path, resolved(own)) })
}

// furtherPatience bounds how long the file system of a hidden path may take to answer.
const furtherPatience = 2 * time.Second

// Further removes from a list for [Sandbox.Hide] the paths that Options.Hide hides from every server. A path whose
// file system does not answer stays.
func (r *Runner) Further(hide []string) []string {
	return slices.DeleteFunc(hide, func(path string) bool {
		var hidden bool
		return r.checks.lookups.Do("hidden "+path, furtherPatience, func() { hidden = r.hides(resolved(path)) }) && hidden
	})
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

// below reports whether path lies in dir, and is not dir itself.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && len(rest) > 1 && rest[0] == '/'
}

// plan returns the plan for containing a server; nil: it is not contained.
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
