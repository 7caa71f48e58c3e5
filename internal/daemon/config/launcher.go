package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// LauncherPrefix is the prefix of a launcher's name in lists that also contain servers, whose names have no
// colon.
const LauncherPrefix = "launcher:"

// launcherName matches the name of a launcher.
var launcherName = lazily(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// launcherRight matches one word of rights.
var launcherRight = lazily(`^(agent|instructions|server:[A-Za-z0-9_-]+|tool:[A-Za-z0-9_-]+/[^\s,]+)$`)

// places lists the placeholders in the arguments of a launcher.
var places = []string{"{model}", "{cwd}", "{name}"}

// launcherEntry decodes one launcher.
func (d *decoder) launcherEntry(n *yaml.Node, key, name string, v reflect.Value) {
	l := &Launcher{Name: name}
	d.setDefaults(reflect.ValueOf(l).Elem())
	v.Set(reflect.ValueOf(l))
	if !launcherName.MatchString(name) {
		d.report.fail(key, "a launcher's name has 1 to 63 lower-case letters, digits, dots, underscores and hyphens, and begins with a letter or digit; rename it")
	}
	if isForeign(n) {
		return
	}
	d.report.server = LauncherPrefix + name
	defer func() { d.report.server = "" }()
	if isNull(n) {
		n = &yaml.Node{Kind: yaml.MappingNode} // structure then reports that its command is missing
	}
	d.structure(n, key, reflect.ValueOf(l).Elem())
	d.check.launcher(key, l)
}

// launcher checks the values of a launcher together.
func (k checker) launcher(key string, l *Launcher) {
	s := &Server{Command: l.Command, Args: l.Args, Env: l.Env}
	if !k.report.failed[key] {
		k.command(key, s)
	}
	l.Path = s.Path
	for name := range l.Env {
		if strings.HasPrefix(name, "DOORWARD_") {
			k.report.refuse(join(join(key, "env"), name), "variables of this name are reserved for Doorward; remove it")
		}
	}
	k.places(key, l)
	if len(l.Roots) == 0 && l.Cwd != "" {
		l.Roots = []string{l.Cwd}
	}
	if len(l.Roots) == 0 {
		k.report.refuse(key, "it has no directory to start in; give it cwd or roots")
	}
	if l.Cwd == "" && len(l.Roots) > 0 {
		l.Cwd = l.Roots[0]
	}
	k.paths(join(key, "roots"), l.Roots)
	k.paths(join(key, "read"), l.Read)
	k.paths(join(key, "write"), l.Write)
	for i, w := range l.Rights {
		if !launcherRight.MatchString(w) {
			k.report.refuse(fmt.Sprintf("%s[%d]", join(key, "rights"), i), "this must be server:NAME, tool:SERVER/NAME, agent or instructions; there is no right to administer")
		}
	}
	if l.Sandbox != "strict" && l.Network.Ports() != nil {
		k.report.refuse(join(key, "network"), "a list of ports needs sandbox: strict; contain supports inherit and none")
	}
	if l.Sandbox == "off" {
		k.report.warn(join(key, "sandbox"), "an agent without a sandbox has all rights of your user, whatever its own rights say")
	}
}

// places checks that a placeholder is a whole argument, so that its value cannot become another argument.
func (k checker) places(key string, l *Launcher) {
	model := false
	for i, a := range l.Args {
		at, arg := fmt.Sprintf("%s[%d]", join(key, "args"), i), a.Reveal()
		model = model || arg == "{model}"
		if !slices.Contains(places, arg) && slices.ContainsFunc(places, func(p string) bool { return strings.Contains(arg, p) }) {
			k.report.refuse(at, "a placeholder such as {model} must be a whole argument; write --option and {model} as two arguments")
		}
		if strings.Contains(arg, "{prompt}") {
			k.report.refuse(at, "the prompt goes to standard input, never into the arguments; leave {prompt} out")
		}
	}
	if model && len(l.Models) == 0 {
		k.report.refuse(join(key, "models"), "the arguments have {model}, and no model is listed; list those that may be asked for")
	}
	for i, m := range l.Models {
		if m == "" || len(m) > 64 || m[0] == '-' || strings.ContainsFunc(m, func(r rune) bool { return r <= ' ' || r > '~' }) {
			k.report.refuse(fmt.Sprintf("%s[%d]", join(key, "models"), i), "this must be 1 to 64 visible ASCII characters, and not begin with a hyphen")
		}
	}
}

// refuseLaunchers sets Refused of each launcher to its first problem.
func (r *report) refuseLaunchers(c *Config) {
	for _, p := range r.problems {
		name := strings.TrimPrefix(p.Server, LauncherPrefix)
		rest, ours := strings.CutPrefix(p.Key, join("agent.launchers", name)) // not a server: a refused one may have any name
		if l := c.Agent.Launchers[name]; ours && l != nil && !p.Warning && l.Refused == "" {
			l.Refused = p.Problem
			if rest != "" {
				l.Refused = rest[1:] + ": " + p.Problem
			}
		}
	}
}

// launchers checks what launchers require of the rest of the file.
func (k checker) launchers(c *Config) {
	if len(c.Agent.Launchers) == 0 {
		return
	}
	if c.Listen.Unix == "off" {
		k.report.fail("agent.launchers", "an agent that is started reaches Doorward through the Unix socket alone, which is off; leave listen.unix on auto, or the launchers out")
	}
	for name, l := range c.Agent.Launchers {
		for i, w := range l.Rights {
			if server := serverOfRight(w); server != "" && c.Servers[server] == nil {
				k.report.warn(fmt.Sprintf("%s[%d]", join("agent.launchers", name)+".rights", i), fmt.Sprintf("no server %s is configured", plaintext.Clip(server, maxShown)))
			}
		}
	}
}
