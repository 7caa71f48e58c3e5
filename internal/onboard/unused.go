package onboard

import (
	"path/filepath"
	"slices"
)

// withoutUnused disables the entries of a source that its client does not use. root is the decoded source.
func (p Places) withoutUnused(s Source, root map[string]any, all []entry) []entry {
	section, _ := root["mcp"].(map[string]any)
	switch {
	case s.Client.Name == "gemini" || s.Client.Name == "qwen":
		excluded, allowed := stringsOf(section["excluded"]), stringsOf(section["allowed"])
		disable(all, func(name string) bool {
			return slices.Contains(excluded, name) || section["allowed"] != nil && !slices.Contains(allowed, name)
		})
	case s.Client.Name == "claude-code" && s.Dir != "":
		rejected := p.rejected(s.Client)
		disable(all, func(name string) bool { return slices.Contains(rejected, name) })
	}
	return all
}

// rejected returns the servers of the project's file that the user has rejected in Claude Code. A file
// that cannot be read has none.
func (p Places) rejected(c *Client) []string {
	own, _ := p.User(c) // without a home there is no such file
	project, _ := members(own)["projects"].(map[string]any)
	mine, _ := project[p.Dir].(map[string]any)
	all := stringsOf(mine["disabledMcpjsonServers"])
	for _, path := range []string{p.expand("$CLAUDE_CONFIG_DIR/settings.json"), p.expand("~/.claude/settings.json"),
		filepath.Join(p.Dir, ".claude", "settings.json"), filepath.Join(p.Dir, ".claude", "settings.local.json")} {
		all = append(all, stringsOf(members(path)["disabledMcpjsonServers"])...)
	}
	return all
}

// members returns the members of a JSON file; nil: it cannot be read.
func members(path string) map[string]any {
	if path == "" {
		return nil
	}
	f, err := Read(path)
	if err != nil {
		return nil
	}
	tree, _ := decode(JSON, f.Text) // nil after an error
	root, _ := tree.(map[string]any)
	return root
}

func disable(all []entry, off func(name string) bool) {
	for _, e := range all {
		if e.values != nil && off(e.name) {
			e.values["disabled"] = true
		}
	}
}
