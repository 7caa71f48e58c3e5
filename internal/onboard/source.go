package onboard

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A Source is a file with servers of a client.
type Source struct {
	Client *Client
	Path   string
	Dir    string // the directory of the project of the file; empty: it is the user's
}

// Sources lists the files of clients on this machine, those of the user before those of the
// project. They need not exist. A file of the user that is in the place of the project's, as
// in the home directory, is listed once.
func (p Places) Sources(clients []*Client) []Source {
	var out []Source
	for _, c := range clients {
		users := p.users(c)
		for _, path := range users {
			out = append(out, Source{c, path, ""})
		}
		if path, err := p.Project(c); err == nil && !hasFile(users, path) {
			out = append(out, Source{c, path, p.Dir})
		}
	}
	return out
}

// File makes a source of any file. Its client is the one that the file belongs to,
// otherwise the first one with servers under the same key.
func (p Places) File(path string) (Source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Source{}, err
	}
	for _, s := range p.Sources(Clients()) {
		if s.Path == path {
			return s, nil
		}
	}
	f, err := Read(path)
	if err != nil {
		return Source{}, err
	}
	if f.Text == nil {
		return Source{}, fmt.Errorf("%s: there is no such file", path)
	}
	c, err := recognized(path, f.Text)
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w", path, err)
	}
	return Source{c, path, ""}, nil
}

// recognized returns the client that writes such a text.
func recognized(path string, text []byte) (*Client, error) {
	format := JSON
	switch strings.ToLower(filepath.Ext(path)) {
	case ".toml":
		format = TOML
	case ".yaml", ".yml":
		format = YAML
	}
	tree, err := decode(format, text)
	if err != nil {
		return nil, err
	}
	// Several clients use mcpServers; Claude Code accepts most forms of it.
	for _, c := range append([]*Client{Find("claude-code"), Find("vscode")}, Clients()...) {
		if c.doc().servers(tree) == nil {
			continue
		}
		if _, list := c.doc().servers(tree).([]any); list == c.list {
			it := *c
			it.Format = format
			return &it, nil
		}
	}
	return nil, fmt.Errorf("%w: the servers of this file are not under a key that a client uses; write them under mcpServers", ErrShape)
}

// entry is one server in a client's file.
type entry struct {
	from   Source
	dir    string // directory in which a project's servers start; empty: any
	name   string
	values map[string]any
	inputs map[string]string // descriptions of the values that an editor asks for, by id
}

// entries reads the servers of a source, sorted by name. A missing file has none.
func (p Places) entries(s Source) ([]entry, error) {
	f, err := Read(s.Path)
	if err != nil || f.Text == nil {
		return nil, err
	}
	tree, err := decode(s.Client.Format, f.Text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return nil, errors.New("the root is not a mapping")
	}
	inputs := inputsOf(root)
	out := p.withoutUnused(s, root, listed(s, s.Dir, s.Client.in(tree).doc().servers(tree), inputs))
	if s.Client.Name == "claude-code" && s.Dir == "" {
		projects, _ := root["projects"].(map[string]any)
		mine, _ := projects[p.Dir].(map[string]any)
		local := listed(s, p.Dir, mine["mcpServers"], inputs)
		disable(local, func(name string) bool { return slices.Contains(stringsOf(mine["disabledMcpServers"]), name) })
		out = append(out, local...)
	}
	return out, nil
}

// listed returns the servers of a map, or of a list with names.
func listed(s Source, dir string, servers any, inputs map[string]string) []entry {
	byName, _ := servers.(map[string]any)
	if all, ok := servers.([]any); ok {
		byName = map[string]any{}
		for _, item := range all {
			if m, ok := item.(map[string]any); ok {
				name, _ := m["name"].(string)
				byName[name] = m
			}
		}
	}
	var out []entry
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		values, _ := byName[name].(map[string]any)
		out = append(out, entry{s, dir, name, values, inputs})
	}
	return out
}

// inputsOf returns the descriptions of the values that VS Code asks for.
func inputsOf(root map[string]any) map[string]string {
	out := map[string]string{}
	all, _ := root["inputs"].([]any)
	for _, item := range all {
		m, _ := item.(map[string]any)
		id, _ := m["id"].(string)
		description, _ := m["description"].(string)
		out[id] = description
	}
	return out
}
