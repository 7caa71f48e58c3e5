package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// DefaultAddr is the address of the TCP listener if the configuration names none.
const DefaultAddr = "127.0.0.1:7866"

// Load reads the file at path, YAML or JSON, or returns the built-in defaults if path is empty. The Config
// is nil exactly if Fatal(problems); a server with problems of its own is in it with the reason in Refused.
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
	o.exposed = exposed(abs)
	c, ps := Parse(path, filepath.Dir(abs), content, o)
	if c != nil {
		c.File = abs
	}
	return c, ps
}

// Parse is Load for content in memory. name is the file in problems, dir the absolute directory to which
// paths are relative.
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
	c.Secrets, c.Unread = d.secrets, d.unread
	c.Limits.Written = d.written("limits", reflect.TypeFor[Limits]())
	for name, s := range c.Servers {
		s.Doorward.CountsOwn = r.lines[serverKey(name)+".doorward.max_concurrency"] > 0
	}
	r.refuseServers(c)
	r.refuseLaunchers(c)
	return c, r.problems
}

// written returns the keys of a section that are in the file; nil: none.
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

// refuseServers sets Refused of each server to its first problem.
func (r *report) refuseServers(c *Config) {
	for _, p := range r.problems {
		rest, ours := strings.CutPrefix(p.Key, serverKey(p.Server)) // not a launcher: a refused server may have any name
		if s := c.Servers[p.Server]; ours && s != nil && !p.Warning && s.Refused == "" {
			s.Refused = p.Problem
			if rest != "" {
				s.Refused = rest[1:] + ": " + p.Problem
			}
		}
	}
}

// Usable reports whether the server may be offered.
func (s *Server) Usable() bool { return !s.Disabled && s.Refused == "" }

// LineOf returns the line of a key in the configuration at path, or of the nearest key around it. 0: the
// file is not a configuration, or cannot be read.
func LineOf(path, key string) int {
	content, err := os.ReadFile(path)
	if path == "" || err != nil || len(content) > maxFile {
		return 0
	}
	src := source{newReport(path)}
	root := src.tree(content)
	if root == nil {
		return 0
	}
	src.lint(root)
	return src.report.line(key)
}

// all checks the values of the whole file together.
func (k checker) all(c *Config) {
	k.approvals(c.Approvals, c.Listen.HTTP)
	if c.Listen.Unix == "off" && len(c.Listen.HTTP) == 0 {
		k.report.fail("listen", "there is no listener; leave unix on auto or add an entry to http")
	}
	if c.Listen.Unix == "" {
		k.report.also("listen.unix", "this must be auto, off or a path")
	}
	for i, l := range c.Listen.HTTP {
		k.listener(fmt.Sprintf("listen.http[%d]", i), l)
	}
	k.names(c.Servers)
	k.launchers(c)
	k.oauth(c.OAuth)
	k.scopeServers(c)
	k.egress(c.Egress)
	k.telemetry(c.Telemetry)
	if signIn := c.Store.SignInKey; !signIn.Empty() && len(signIn.Reveal()) < 32 {
		k.report.also("store.sign_in_key", "this must have 32 characters or more")
	}
	k.instructions(&c.Instructions)
}

// names reports servers whose names cannot be used, and those whose names differ only in case: a client
// that ignores case could not distinguish them.
func (k checker) names(servers map[string]*Server) {
	seen := map[string]string{}
	names := slices.SortedFunc(maps.Keys(servers), func(a, b string) int {
		if n := servers[a].Line - servers[b].Line; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		folded := strings.ToLower(name)
		if first, twice := seen[folded]; twice && usableName(name) {
			k.report.fail(serverKey(name), fmt.Sprintf("the name differs from %s (line %d) in case alone; rename one", first, servers[first].Line))
			continue
		}
		seen[folded] = name
	}
	for _, name := range names {
		if !usableName(name) {
			proposal := freeName(plaintext.ServerName(name), seen)
			seen[strings.ToLower(proposal)] = proposal
			k.report.note(Problem{Line: k.report.line(serverKey(name)), Key: serverKey(name), Server: name, Problem: nameRule + "; rename it, for example to " + proposal})
		}
	}
}

// freeName returns name, with a number if a server already has it. The keys of taken are in lower case.
func freeName(name string, taken map[string]string) string {
	out := name
	for n := 2; taken[strings.ToLower(out)] != "" || isBuiltin(out); n++ {
		out = fmt.Sprintf("%s-%d", name, n)
	}
	return out
}
