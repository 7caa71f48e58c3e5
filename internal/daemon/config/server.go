package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/secret"
)

// serverName matches the name of a server. With "__" excluded, it can precede the two underscores of an
// aggregated name.
var serverName = lazily(`^[a-zA-Z0-9](?:[a-zA-Z0-9_-]{0,62}[a-zA-Z0-9])?$`)

// builtin lists the names of the built-in servers.
var builtin = []string{"agent", "instructions"}

// serverKey returns the key of a server.
func serverKey(name string) string { return join("mcpServers", name) }

// serverEntry decodes one server. It first checks whether the server is disabled, in which case its values
// do not matter.
func (d *decoder) serverEntry(n *yaml.Node, key, name string, v reflect.Value) {
	s := &Server{Name: name, Line: d.report.line(key)}
	d.setDefaults(reflect.ValueOf(s).Elem())
	v.Set(reflect.ValueOf(s))
	if isBuiltin(name) {
		d.report.fail(key, "this name is taken by a built-in server; rename it")
	}
	d.report.server, d.report.muted, d.report.entered = name, isDisabled(n), len(d.report.problems)
	defer func() { d.report.server, d.report.muted = "", false }()

	switch {
	case isForeign(n):
	case isNull(n):
		d.report.fail(key, neither)
	case n.Kind != yaml.MappingNode:
		d.report.fail(key, fmt.Sprintf("this must be a mapping with command and args, or with url, not %s", kindName(n)))
	default:
		d.structure(n, key, reflect.ValueOf(s).Elem())
		d.check.server(n, key, s)
	}
}

// neither is the problem of a server without command and url.
const neither = "the server has neither command nor url; give it one"

// isDisabled reports whether a server contains disabled: true.
func isDisabled(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	for name, child := range pairs(n) {
		if name == "disabled" {
			return child.Tag == "!!bool" && strings.EqualFold(child.Value, "true")
		}
	}
	return false
}

// nameRule says which names a server may have.
const nameRule = "a server's name has 1 to 64 letters, digits, hyphens and single underscores, and begins and ends with a letter or digit"

// usableName reports whether a server may have a name. One that may not refuses only its server.
func usableName(name string) bool {
	return serverName.MatchString(name) && !strings.Contains(name, "__")
}

// isBuiltin reports whether a built-in server has a name.
func isBuiltin(name string) bool {
	return slices.ContainsFunc(builtin, func(b string) bool { return strings.EqualFold(b, name) })
}

// server checks the values of a server together.
func (k checker) server(n *yaml.Node, key string, s *Server) {
	if n.Kind != yaml.MappingNode {
		return
	}
	given := maps.Collect(pairs(n))
	k.patterns(key+".doorward.tools.allow", s.Doorward.Tools.Allow)
	k.patterns(key+".doorward.tools.deny", s.Doorward.Tools.Deny)
	k.held(key+".doorward.tools.ask", s.Doorward.Tools.Ask)
	if !k.settleKind(key, given, s) {
		return
	}
	k.warnUseless(key, given, s)
	if s.Kind == "stdio" {
		s.Display, s.Written = displayCommand(given["command"], given["args"]), written(given["args"])
		k.command(key, s)
		k.sandbox(key, s)
		return
	}
	s.Display = displayURL(given["url"].Value)
	k.serverURL(join(key, "url"), s)
	k.headers(join(key, "headers"), s.Headers)
	k.signIn(key, s)
}

// settleKind determines the transport, and reports whether the server has the keys that it needs.
func (k checker) settleKind(key string, given map[string]*yaml.Node, s *Server) bool {
	command, url, typ := given["command"] != nil, given["url"] != nil, join(key, "type")
	switch {
	case s.Kind == "streamable-http" || s.Kind == "streamableHttp" || s.Kind == "" && url:
		s.Kind = "http"
	case s.Kind == "" && command:
		s.Kind = "stdio"
	}
	switch {
	case command && url:
		k.report.fail(key, "the server has both command and url; keep one")
	case !command && !url && slices.ContainsFunc(k.report.problems[k.report.entered:], func(p Problem) bool { return !p.Warning }):
		// One of the reported keys may be the misspelt key.
	case !command && !url:
		k.report.also(key, neither)
	case k.report.failed[typ] || k.report.muted && s.Kind != "stdio" && s.Kind != "http" && s.Kind != "sse":
	case command && s.Kind != "stdio":
		k.report.fail(typ, fmt.Sprintf("a server of type %s needs url, not command", s.Kind))
	case url && s.Kind == "stdio":
		k.report.fail(typ, "a server of type stdio needs command, not url")
	default:
		return true
	}
	return false
}

// warnUseless warns of keys that have no effect for this kind of server.
func (k checker) warnUseless(key string, given map[string]*yaml.Node, s *Server) {
	useless := map[bool][]string{true: {"headers"}, false: {"args", "env", "cwd"}}[s.Kind == "stdio"]
	for _, name := range useless {
		if given[name] != nil {
			k.report.warn(join(key, name), fmt.Sprintf("does nothing for a server of type %s", s.Kind))
		}
	}
	ours := append([]string{"sandbox"}, shut...)
	if s.Kind == "stdio" {
		ours = []string{"allow_private", "oauth", "connect_timeout", "first_byte_timeout"}
	}
	for _, name := range ours {
		if at := join(join(key, "doorward"), name); k.report.lines[at] > 0 {
			k.report.warn(at, fmt.Sprintf("does nothing for a server of type %s", s.Kind))
		}
	}
}

// shellMeaning is the set of characters that are special to a shell. No shell reads the command, so they
// are a mistake.
const shellMeaning = "|&;<>()$`\"'*?[]{}!#\\\n\r"

// command resolves the command of a child, and checks its arguments and environment.
func (k checker) command(key string, s *Server) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		value := s.Env[name]
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value.Reveal(), "\x00") {
			k.report.refuse(join(join(key, "env"), name), "this cannot be an environment variable: a name is not empty and has no =, and no value has a NUL")
		}
	}
	for i, arg := range s.Args {
		if strings.Contains(arg.Reveal(), "\x00") {
			k.report.refuse(fmt.Sprintf("%s[%d]", join(key, "args"), i), "an argument cannot hold a NUL")
		}
		k.report.warnHome(fmt.Sprintf("%s[%d]", join(key, "args"), i), arg.Reveal())
	}
	at := join(key, "command")
	switch {
	case k.report.muted || k.report.failed[at]:
		return
	case s.Command == "":
		k.report.refuse(at, "the command is empty")
	case s.Command[0] == '~':
		k.report.refuse(at, "~ is not expanded; write ${HOME}")
	case strings.ContainsAny(s.Command, shellMeaning):
		k.report.refuse(at, "no shell reads the command, so characters such as | & ; $ * and quotes mean nothing; give the program alone, and its arguments in args")
	case hasArguments(s.Command):
		k.report.refuse(at, "the command is the program alone; give its arguments in args, one string each")
	default:
		k.resolveCommand(at, s)
	}
}

// hasArguments distinguishes a program name followed by words from a path that contains spaces.
func hasArguments(command string) bool {
	program, _, more := strings.Cut(command, " ")
	return more && !strings.Contains(program, "/")
}

// resolveCommand finds the program on the PATH of the child.
func (k checker) resolveCommand(key string, s *Server) {
	command, path := s.Command, get(k.o.Env, "PATH")
	if strings.Contains(command, "/") && !filepath.IsAbs(command) {
		command = filepath.Join(k.dir, command)
	}
	if own, ok := s.Env["PATH"]; ok {
		path = own.Reveal()
	}
	if k.o.ResolveCommand == nil {
		return
	}
	resolved, err := k.o.ResolveCommand(command, path)
	if err != nil {
		k.report.refuse(key, "finding the command: "+err.Error()+commandAdvice(s, err))
		return
	}
	s.Path = resolved
}

// displayCommand returns a command line as written in the file. Words with spaces are quoted for
// readability.
func displayCommand(command, args *yaml.Node) string {
	words := []string{command.Value}
	for _, a := range written(args) {
		words = append(words, a.Reveal())
	}
	for i, w := range words {
		if w == "" || strings.Contains(w, " ") || strconv.Quote(w) != `"`+w+`"` {
			words[i] = strconv.Quote(w)
		}
	}
	return strings.Join(words, " ")
}

// written returns arguments as written in the file.
func written(args *yaml.Node) (out []secret.Value) {
	if args == nil {
		return nil
	}
	for _, a := range args.Content {
		out = append(out, secret.New(a.Value))
	}
	return out
}

// displayURL returns an address as written in the file, without query and fragment. An address with user
// information is refused elsewhere and not shown.
func displayURL(written string) string {
	written, _, _ = strings.Cut(written, "?")
	written, _, _ = strings.Cut(written, "#")
	if strings.Contains(written, "@") {
		return ""
	}
	return plaintext.Line(written)
}
