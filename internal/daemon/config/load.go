package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
)

// DefaultAddr is where the daemon listens when the configuration does not say.
const DefaultAddr = "127.0.0.1:7866"

// Options are what Load needs from outside. Config does not dial, resolve or start anything itself.
type Options struct {
	// Env looks up an environment variable. nil: every variable is unset.
	Env func(name string) (value string, ok bool)
	// CheckURL judges a server's resolved address; its error is shown, so it must not repeat the address. nil: only
	// the scheme is judged.
	CheckURL func(raw string, allowPrivate bool) error
	// ResolveCommand makes an absolute path of a command, which holds a slash only when it is absolute already.
	// pathEnv is the PATH that the child will have. nil: Server.Path stays empty.
	ResolveCommand func(command, pathEnv string) (string, error)
	// Open opens the configuration and the policy file to read. nil: os.Open.
	Open func(path string) (*os.File, error)
	// Vet judges the content of the configuration file, before anything of it is looked at. nil: everything will do.
	Vet func(content []byte) error
	// File and Keyring fetch ${file:} and ${keyring:} references. nil: package secret's own.
	File    func(path string) (secret.Value, error)
	Keyring func(service, name string) (secret.Value, error)
}

// Load reads the file at path, YAML or JSON, or gives the built-in defaults when path is empty. The Config is nil
// exactly when Fatal(problems); a server with problems of its own is in it with the reason in Refused.
func Load(path string, o Options) (*Config, []Problem) {
	if path == "" {
		return Parse("", configHome(o.Env), nil, o)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, []Problem{{File: path, Problem: fmt.Sprintf("finding the file: %v", err)}}
	}
	content, err := readFile(abs, o.Open)
	if err == nil && o.Vet != nil {
		err = o.Vet(content)
	}
	if err != nil {
		return nil, []Problem{{File: path, Problem: err.Error()}}
	}
	c, ps := Parse(path, filepath.Dir(abs), content, o)
	if c != nil {
		c.File = abs
	}
	return c, ps
}

// Parse is Load for content in memory. name is the file in problems, dir the absolute directory from which relative
// paths are taken.
func Parse(name, dir string, content []byte, o Options) (*Config, []Problem) {
	r := newReport(name)
	d := &decoder{dir: dir, o: o, report: r, src: source{r}, check: checker{r, dir, o}, known: map[reflect.Type][]field{}}
	c := &Config{Dir: dir, Servers: map[string]*Server{}}
	d.setDefaults(reflect.ValueOf(c).Elem())
	c.Listen.HTTP = []Listener{{Addr: DefaultAddr}}
	d.setDefaults(reflect.ValueOf(&c.Listen.HTTP[0]).Elem())
	d.paths(reflect.ValueOf(c).Elem())

	if root := d.src.tree(content); root != nil {
		d.src.lint(root)
		if !d.clientsFile(root) {
			d.structure(root, "", reflect.ValueOf(c).Elem())
		}
	}
	d.check.all(c)
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Key, b.Key))
	})
	if Fatal(r.problems) {
		return nil, r.problems
	}
	c.Secrets = d.secrets
	c.Limits.Written = d.written("limits", reflect.TypeFor[Limits]())
	for name, s := range c.Servers {
		s.Doorward.CountsOwn = r.lines[serverKey(name)+".doorward.max_concurrency"] > 0
	}
	r.refuseServers(c)
	r.refuseLaunchers(c)
	return c, r.problems
}

// written are the keys of a section that stand in the file; nil for none.
func (d *decoder) written(section string, t reflect.Type) map[string]bool {
	var out map[string]bool
	for _, key := range d.keys(t) {
		if d.report.lines[join(section, key)] > 0 {
			if out == nil {
				out = make(map[string]bool)
			}
			out[key] = true
		}
	}
	return out
}

// refuseServers writes the first problem of each server into it.
func (r *report) refuseServers(c *Config) {
	for _, p := range r.problems {
		if s := c.Servers[p.Server]; s != nil && !p.Warning && s.Refused == "" {
			s.Refused = p.Problem
			if rest := p.Key[len(serverKey(p.Server)):]; rest != "" {
				s.Refused = rest[1:] + ": " + p.Problem
			}
		}
	}
}

// Usable tells whether the server is to be offered.
func (s *Server) Usable() bool { return !s.Disabled && s.Refused == "" }
