package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/secret"
)

// Launcher is a program that agents may start as another agent.
type Launcher struct {
	Command string                  `yaml:"command" required:"yes" refs:"env" doc:"The program to start: a name found on PATH, or a path. No shell reads it. Its content is pinned at the first start, and a changed one waits for doorward trust launcher:NAME."`
	Args    []secret.Value          `yaml:"args" refs:"env" doc:"Its arguments, one string each. {model}, {cwd} and {name} stand for values of one start; each must be a whole argument. The prompt is never an argument: it goes to standard input."`
	Env     map[string]secret.Value `yaml:"env" refs:"any" doc:"Environment variables for the program, beside PATH, HOME, USER, LANG and TMPDIR and what doorward connect needs in it."`
	Cwd     string                  `yaml:"cwd" refs:"env" path:"" doc:"The directory in which it starts when the request names none. Empty is the first of roots."`
	Roots   []string                `yaml:"roots" refs:"env" path:"" doc:"Directories in which it may be started. Empty is cwd alone."`
	Rights  []string                `yaml:"rights" doc:"The rights that an agent of this launcher can have: server:NAME, tool:SERVER/NAME, instructions. Messaging needs no entry; administration cannot be granted. An agent never has a right that its parent lacks."`
	Models  []string                `yaml:"models" doc:"The permitted values of {model}; the first is the default."`
	Budget  Budget                  `yaml:"budget" doc:"The most that one start may ask for, and what it gets when it does not ask."`
	Output  Size                    `yaml:"output" default:"8MiB" max:"1GiB" doc:"How much of its standard output is kept, for seven days, when that is more than 64 KiB; the last 64 KiB are the result."`
	Trust   string                  `yaml:"trust" default:"auto" enum:"auto|manual" doc:"auto approves the program and its arguments at the first start; manual withholds them until doorward trust launcher:NAME."`

	Sandbox string       `yaml:"sandbox" default:"contain" enum:"off|contain|strict" doc:"How far it is contained; see sandbox.md. It is not started where the system cannot do it."`
	Read    []string     `yaml:"read" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"As for a server."`
	Write   []string     `yaml:"write" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"As for a server."`
	Network Network      `yaml:"network" default:"inherit" doc:"As for a server. Doorward's socket can be reached with none too."`
	Limits  ServerLimits `yaml:"limits" doc:"Limits of one agent together with everything it starts."`

	// Name is the launcher's key.
	Name string `yaml:"-"`
	// Path is what Options.ResolveCommand made of Command: an absolute path.
	Path string `yaml:"-"`
	// Refused is why the launcher must not be used, empty when it may.
	Refused string `yaml:"-"`
}

// Budget bounds one started agent.
type Budget struct {
	Seconds  int `yaml:"max_seconds" default:"1800" min:"1" max:"7200" doc:"Seconds until it is ended."`
	Children int `yaml:"max_children" default:"0" min:"0" max:"4" doc:"Agents that it may start in turn."`
	Messages int `yaml:"max_messages" default:"100" min:"0" max:"100000" doc:"Messages that it may send."`
}

var launcherType = reflect.TypeFor[Launcher]()

// LauncherPrefix stands before the name of a launcher where there are names of servers too; no server's name has a
// colon.
const LauncherPrefix = "launcher:"

// launcherName is what a caller of spawn can write.
var launcherName = lazily(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// launcherRight is one word of rights.
var launcherRight = lazily(`^(agent|instructions|server:[A-Za-z0-9_-]+|tool:[A-Za-z0-9_-]+/[^\s,]+)$`)

// Places are the words in the arguments of a launcher that stand for values.
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
		n = &yaml.Node{Kind: yaml.MappingNode} // its command is missing then
	}
	d.structure(n, key, reflect.ValueOf(l).Elem())
	d.check.launcher(key, l)
}

// launcher checks what the values of a launcher mean together.
func (k checker) launcher(key string, l *Launcher) {
	s := &Server{Command: l.Command, Args: l.Args, Env: l.Env}
	if !k.report.failed[key] {
		k.command(key, s)
	}
	l.Path = s.Path
	for name := range l.Env {
		if strings.HasPrefix(name, "DOORWARD_") {
			k.report.refuse(join(join(key, "env"), name), "variables of this name are Doorward's own; leave it out")
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

// places checks that a value is a whole argument or none, so that nothing in it can become another one.
func (k checker) places(key string, l *Launcher) {
	model := false
	for i, a := range l.Args {
		at, arg := fmt.Sprintf("%s[%d]", join(key, "args"), i), a.Reveal()
		model = model || arg == "{model}"
		if !slices.Contains(places, arg) && slices.ContainsFunc(places, func(p string) bool { return strings.Contains(arg, p) }) {
			k.report.refuse(at, "a place such as {model} must be an argument by itself; write --option and {model} as two")
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

// refuseLaunchers writes the first problem of each launcher into it.
func (r *report) refuseLaunchers(c *Config) {
	for _, p := range r.problems {
		name, ours := strings.CutPrefix(p.Server, LauncherPrefix)
		if l := c.Agent.Launchers[name]; ours && l != nil && !p.Warning && l.Refused == "" {
			l.Refused = p.Problem
			if rest := strings.TrimPrefix(p.Key, join("agent.launchers", name)); rest != "" {
				l.Refused = rest[1:] + ": " + p.Problem
			}
		}
	}
}

// launchers looks at what launchers need of the rest of the file.
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

// serverOfRight is the configured server that a word is about; empty for none.
func serverOfRight(word string) string {
	kind, rest, _ := strings.Cut(word, ":")
	server, _, _ := strings.Cut(rest, "/")
	if kind != "server" && kind != "tool" || slices.Contains(builtin, server) {
		return ""
	}
	return server
}
