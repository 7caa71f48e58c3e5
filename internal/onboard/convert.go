package onboard

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// server is an entry in the form of Doorward's configuration.
type server struct {
	kind         string // empty: determined by command or url
	command      string
	args         []string
	env          map[string]string
	cwd          string
	url          string
	headers      map[string]string
	disabled     bool
	allow, deny  []string // tools
	allowPrivate bool
}

// object returns the entry to write.
func (s server) object() object {
	var o object
	add := func(key string, value any, there bool) {
		if there {
			o = append(o, pair{key, value})
		}
	}
	add("type", s.kind, s.kind != "")
	add("command", s.command, s.command != "")
	add("args", s.args, len(s.args) > 0)
	add("env", sorted(s.env), len(s.env) > 0)
	add("cwd", s.cwd, s.cwd != "")
	add("url", s.url, s.url != "")
	add("headers", sorted(s.headers), len(s.headers) > 0)
	add("disabled", true, s.disabled)
	add("doorward", s.handling(), len(s.handling()) > 0)
	return o
}

// handling returns the value of the key doorward.
func (s server) handling() object {
	var tools, o object
	if s.allow != nil {
		tools = append(tools, pair{"allow", s.allow})
	}
	if len(s.deny) > 0 {
		tools = append(tools, pair{"deny", s.deny})
	}
	if tools != nil {
		o = append(o, pair{"tools", tools})
	}
	if s.allowPrivate {
		o = append(o, pair{"allow_private", true})
	}
	return o
}

func sorted(m map[string]string) object {
	var o object
	for _, key := range slices.Sorted(maps.Keys(m)) {
		o = append(o, pair{key, m[key]})
	}
	return o
}

// conversion is the conversion of one entry.
type conversion struct {
	entry
	home  string
	notes []string
}

func (c *conversion) note(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// server converts the entry. If it is not an MCP server, the result is nil and a note
// gives the reason.
func (c *conversion) server() *server {
	s := &server{env: map[string]string{}, headers: map[string]string{}}
	switch kind, _ := c.values["type"].(string); kind {
	case "builtin", "platform", "frontend", "inline_python", "ws":
		c.note("left out: its type is %s", kind)
		return nil
	}
	c.program(s)
	c.remote(s)
	if s.command == "" && s.url == "" {
		c.note("left out: it has neither a command nor an address")
		return nil
	}
	if s.command != "" {
		if s.url != "" {
			c.note("its address is not imported, because it has a command too: import the address as a server of another name if it is needed")
		}
		s.url, s.kind, s.headers = "", "", nil
	}
	c.tools(s)
	off, _ := c.values["disabled"].(bool)
	on, said := c.values["enabled"].(bool)
	s.disabled = off || said && !on
	c.environment(s)
	c.ignored()
	return s
}

// program reads the command of a server.
func (c *conversion) program(s *server) {
	values := c.values
	if below, ok := values["command"].(map[string]any); ok { // the form of older versions of Zed
		values = map[string]any{"command": below["path"], "args": below["args"], "env": below["env"]}
	}
	words := commandLine(values)
	for i, word := range words {
		words[i] = c.value(word)
	}
	if len(words) == 0 {
		return
	}
	s.command, s.args = c.path(words[0]), words[1:]
	for _, key := range []string{"env", "environment", "envs"} {
		c.fill(s.env, values[key])
	}
	for _, key := range []string{"env_vars", "env_keys"} {
		for _, name := range stringsOf(values[key]) {
			s.env[name] = "${env:" + name + "}"
		}
	}
	cwd, _ := values["cwd"].(string)
	if s.cwd = c.value(cwd); s.cwd == "" {
		s.cwd = c.dir
	} else if !strings.HasPrefix(s.cwd, "$") {
		s.cwd = c.within(s.cwd)
	}
}

// path makes a command that is a path absolute: ~/ is the home directory, and a relative
// path is relative to the directory of the project. A bare name will be looked up in PATH.
func (c *conversion) path(command string) string {
	if strings.ContainsRune(command, '/') && !strings.HasPrefix(command, "$") {
		return c.within(command)
	}
	return command
}

// within makes a path absolute. Without a directory of the entry, a relative path is
// unchanged.
func (c *conversion) within(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && c.home != "" {
		return filepath.Join(c.home, rest)
	}
	if filepath.IsAbs(path) || c.dir == "" {
		return path
	}
	return filepath.Join(c.dir, path)
}

// fill copies the members of an object as texts.
func (c *conversion) fill(into map[string]string, values any) {
	all, _ := values.(map[string]any)
	for name, v := range all {
		switch v := v.(type) {
		case nil, map[string]any, []any:
		case string:
			into[name] = c.value(v)
		default: // a number or a bool, which becomes text for a process
			into[name] = fmt.Sprint(v)
		}
	}
}

// remote reads the address of a server over the network.
func (c *conversion) remote(s *server) {
	for _, key := range []string{"httpUrl", "serverUrl", "url", "uri", "baseUrl"} {
		if address, _ := c.values[key].(string); address != "" {
			s.url = c.value(address)
			s.kind = c.transport(key, s.url)
			break
		}
	}
	c.fill(s.headers, c.values["headers"])
	c.fill(s.headers, c.values["http_headers"])
	if request, ok := c.values["requestOptions"].(map[string]any); ok {
		c.fill(s.headers, request["headers"])
	}
	named, _ := c.values["env_http_headers"].(map[string]any)
	for header, v := range named {
		if name, ok := v.(string); ok {
			s.headers[header] = "${env:" + name + "}"
		}
	}
	if name, _ := c.values["bearer_token_env_var"].(string); name != "" {
		s.headers["Authorization"] = "Bearer ${env:" + name + "}"
	}
}

// transport returns sse, or empty for streamable HTTP, which is what an address means in Doorward's own
// file.
func (c *conversion) transport(key, address string) string {
	kind, _ := first(c.values, "type", "transport", "transportType").(string)
	gemini := c.from.Client.Name == "gemini" || c.from.Client.Name == "qwen" // there url means SSE, and httpUrl does not
	u, err := url.Parse(address)
	ends := err == nil && c.from.Client.Name != Name && key != "httpUrl" && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse")
	if kind == "sse" || (kind == "" || kind == "remote") && (key == "url" && gemini || ends) {
		return "sse"
	}
	return ""
}

// tools reads the lists of tools, which restrict the server.
func (c *conversion) tools(s *server) {
	for _, key := range []string{"includeTools", "enabledTools", "enabled_tools", "available_tools", "tools"} {
		if list, ok := c.values[key].([]any); ok && !slices.Contains(stringsOf(list), "*") && !(key == "available_tools" && len(list) == 0) {
			s.allow = append([]string{}, stringsOf(list)...)
		}
	}
	for _, key := range []string{"excludeTools", "disabledTools", "disabled_tools"} {
		s.deny = append(s.deny, stringsOf(c.values[key])...)
	}
}

// ownAddress reports whether a URL is that of this machine's Doorward.
func ownAddress(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Port() != "7866" {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// leadsBack reports whether a server is Doorward itself. self is the path of this program.
func (s server) leadsBack(self string) bool {
	base := strings.TrimSuffix(filepath.Base(s.command), ".exe")
	if (base == Name || s.command == self) && slices.Contains(s.args, "connect") {
		return true
	}
	return ownAddress(s.url) || slices.ContainsFunc(s.args, ownAddress)
}
