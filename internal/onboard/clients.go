package onboard

// A Client is one MCP client, with the places and the format of its files.
type Client struct {
	Name    string   // on the command line
	Title   string   // for people
	Format  Format   // of all its files
	Keys    []string // the keys from the root of a file to its servers
	list    bool     // the servers are a list, and each contains its name
	user    places
	each    bool     // several of the user's files may be in use at once, by different versions
	project []string // relative to the project's directory
	shape   func(command string, args []string) object
	expands syntax  // the references that the client expands in the values of an entry
	later   *Client // a later version of the client, whose servers are below other Keys
}

// syntax is the notation of references in values.
type syntax uint8

const (
	literal syntax = iota // none
	braces                // ${NAME}, ${NAME:-default}, ${env:NAME} and variables of an editor
	dollars               // braces and $NAME
	curly                 // {env:NAME} and {file:PATH}
)

var mcpServers = []string{"mcpServers"}

// Clients lists the clients in alphabetical order.
func Clients() []*Client {
	return []*Client{
		{Name: "amp", Title: "Amp", Keys: []string{"amp.mcpServers"}, shape: plain, expands: braces,
			user: everywhere("~/.config/amp/settings.json", "~/.config/amp/settings.jsonc"), project: []string{".amp/settings.json", ".amp/settings.jsonc"}},
		{Name: "antigravity", Title: "Antigravity", Keys: mcpServers, shape: plain, expands: dollars,
			user: everywhere("~/.gemini/config/mcp_config.json", "~/.gemini/antigravity/mcp_config.json"), each: true, project: []string{".agents/mcp_config.json"}},
		{Name: "claude-code", Title: "Claude Code", Keys: mcpServers, shape: typed("stdio"), expands: braces,
			user: everywhere("$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"), project: []string{".mcp.json"}},
		{Name: "claude-desktop", Title: "Claude Desktop", Keys: mcpServers, shape: plain,
			user: everywhere("$APP/Claude/claude_desktop_config.json")},
		{Name: "cline", Title: "Cline", Keys: mcpServers, shape: plain, expands: braces,
			user: everywhere("$CLINE_MCP_SETTINGS_PATH", "$CLINE_DATA_DIR/settings/cline_mcp_settings.json", "$CLINE_DIR/data/settings/cline_mcp_settings.json",
				"~/.cline/data/settings/cline_mcp_settings.json", "$APP/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")},
		{Name: "codex", Title: "Codex", Format: TOML, Keys: []string{"mcp_servers"}, shape: plain,
			user: everywhere("$CODEX_HOME/config.toml", "~/.codex/config.toml"), project: []string{".codex/config.toml"}},
		{Name: "continue", Title: "Continue", Format: YAML, Keys: mcpServers, list: true, shape: named, expands: braces,
			user: everywhere("~/.continue/config.yaml")},
		{Name: "copilot", Title: "GitHub Copilot CLI", Keys: mcpServers, shape: copilot, expands: dollars,
			user: everywhere("$COPILOT_HOME/mcp-config.json", "~/.copilot/mcp-config.json"), project: []string{".github/mcp.json"}},
		{Name: "crush", Title: "Crush", Keys: []string{"mcp"}, shape: typed("stdio"), expands: dollars,
			user: everywhere("$XDG/crush/crush.json"), project: []string{"crush.json", ".crush.json"}},
		{Name: "cursor", Title: "Cursor", Keys: mcpServers, shape: plain, expands: braces,
			user: everywhere("~/.cursor/mcp.json"), project: []string{".cursor/mcp.json"}},
		{Name: "gemini", Title: "Gemini CLI", Keys: mcpServers, shape: plain, expands: dollars,
			user: everywhere("~/.gemini/settings.json"), project: []string{".gemini/settings.json"}},
		{Name: "goose", Title: "Goose", Format: YAML, Keys: []string{"extensions"}, shape: goose,
			user: places{linux: []string{"$XDG/goose/config.yaml"}, darwin: []string{"~/.config/goose/config.yaml"}, windows: []string{"$APP/Block/goose/config/config.yaml"}}},
		{Name: "jetbrains", Title: "GitHub Copilot in JetBrains IDEs", Keys: []string{"servers"}, shape: typed("stdio"), expands: braces,
			user: places{linux: []string{"$XDG/github-copilot/intellij/mcp.json"}, darwin: []string{"~/.config/github-copilot/intellij/mcp.json"}, windows: []string{"$LOCAL/github-copilot/intellij/mcp.json"}}},
		{Name: "kiro", Title: "Kiro", Keys: mcpServers, shape: plain, expands: braces,
			user: everywhere("~/.kiro/settings/mcp.json"), project: []string{".kiro/settings/mcp.json"}},
		{Name: "lmstudio", Title: "LM Studio", Keys: mcpServers, shape: plain,
			user: everywhere("~/.lmstudio/mcp.json")},
		{Name: "opencode", Title: "opencode", Keys: []string{"mcp"}, shape: opencode, expands: curly,
			user: everywhere("$XDG/opencode/opencode.json", "$XDG/opencode/opencode.jsonc"), project: []string{"opencode.json", "opencode.jsonc"},
			later: &Client{Keys: []string{"mcp", "servers"}, shape: opencodeLater}},
		{Name: "qwen", Title: "Qwen Code", Keys: mcpServers, shape: plain, expands: dollars,
			user: everywhere("~/.qwen/settings.json"), project: []string{".qwen/settings.json"}},
		{Name: "roo", Title: "Roo Code", Keys: mcpServers, shape: plain, expands: braces,
			user:    everywhere("$APP/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
			project: []string{".roo/mcp.json"}},
		{Name: "vscode", Title: "VS Code", Keys: []string{"servers"}, shape: typed("stdio"), expands: braces,
			user: everywhere("$APP/Code/User/mcp.json"), project: []string{".vscode/mcp.json"}},
		{Name: "windsurf", Title: "Windsurf", Keys: mcpServers, shape: plain, expands: braces,
			user: everywhere("~/.codeium/windsurf/mcp_config.json")},
		{Name: "zed", Title: "Zed", Keys: []string{"context_servers"}, shape: zed,
			user:    places{linux: []string{"$XDG/zed/settings.json"}, darwin: []string{"~/.config/zed/settings.json"}, windows: []string{"$APP/Zed/settings.json"}},
			project: []string{".zed/settings.json"}},
	}
}

// Find returns the client with a name; nil: there is none.
func Find(name string) *Client {
	for _, c := range Clients() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// in returns the client in the version of a decoded text. A server whose name equals the
// key of a later version is recognised by its values, which are not all objects.
func (c *Client) in(tree any) *Client {
	if c.later == nil {
		return c
	}
	all, ok := c.later.doc().servers(tree).(map[string]any)
	for _, v := range all {
		_, isObject := v.(map[string]any)
		ok = ok && isObject
	}
	if !ok {
		return c
	}
	return c.later
}

// holding returns the client in the version in which a decoded text contains Doorward's
// entry; without an entry, in the version of the text.
func (c *Client) holding(tree any) *Client {
	if _, found := c.doc().find(tree, Name); found {
		return c
	}
	return c.in(tree)
}

func (c *Client) doc() document { return document{format: c.Format, keys: c.Keys, list: c.list} }

func plain(command string, args []string) object {
	return object{{"command", command}, {"args", args}}
}

// typed adds the transport in front.
func typed(transport string) func(string, []string) object {
	return func(command string, args []string) object {
		return append(object{{"type", transport}}, plain(command, args)...)
	}
}

func named(command string, args []string) object {
	return append(object{{"name", Name}}, plain(command, args)...)
}

// copilot also lists the offered tools, as its documentation does.
func copilot(command string, args []string) object {
	return append(typed("local")(command, args), pair{"tools", []string{"*"}})
}

// opencode puts the command and its arguments into one list.
func opencode(command string, args []string) object {
	return object{{"type", "local"}, {"command", append([]string{command}, args...)}, {"enabled", true}}
}

// opencodeLater is the entry of opencode's second version, where a server is enabled by
// default.
func opencodeLater(command string, args []string) object {
	return object{{"type", "local"}, {"command", append([]string{command}, args...)}}
}

func zed(command string, args []string) object {
	return append(object{{"source", "custom"}}, append(plain(command, args), pair{"env", object{}})...)
}

// goose has a timeout in seconds, which older versions require.
func goose(command string, args []string) object {
	return object{{"enabled", true}, {"type", "stdio"}, {"name", Name}, {"description", "The MCP servers behind Doorward"},
		{"cmd", command}, {"args", args}, {"envs", object{}}, {"timeout", 300}}
}
