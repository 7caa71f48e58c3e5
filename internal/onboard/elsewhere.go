package onboard

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// elsewhere returns the servers that a source of Claude Code has for single projects other
// than that of p, each with the directory of its project. Directories that do not exist are
// left out.
func (p Places) elsewhere(s Source) []entry {
	if s.Client.Name != "claude-code" || s.Dir != "" {
		return nil
	}
	projects, _ := members(s.Path)["projects"].(map[string]any)
	var out []entry
	for _, dir := range slices.Sorted(maps.Keys(projects)) {
		if fi, err := os.Stat(dir); dir == p.Dir || !filepath.IsAbs(dir) || err != nil || !fi.IsDir() {
			continue
		}
		of, _ := projects[dir].(map[string]any)
		out = append(out, listed(s, dir, of["mcpServers"], nil)...)
	}
	return out
}

// noteElsewhere notes the projects with servers that are neither imported nor in the
// configuration.
func (w *importing) noteElsewhere(all []entry) {
	var dirs []string
	for _, e := range all {
		s := (&conversion{entry: e, home: w.Places.home()}).server()
		if s == nil || slices.Contains(dirs, e.dir) {
			continue
		}
		if _, is := w.name(e, *s); !is {
			dirs = append(dirs, e.dir)
		}
	}
	if len(dirs) > 0 {
		w.note("the servers that claude-code has for single projects are not imported; run doorward import in their directories: %s", strings.Join(dirs, ", "))
	}
}

// noteAbsent notes each client that has none of its files.
func (w *importing) noteAbsent(sources []Source) {
	paths, found := map[*Client][]string{}, map[*Client]bool{}
	for _, s := range sources {
		_, err := os.Lstat(s.Path)
		found[s.Client] = found[s.Client] || err == nil
		paths[s.Client] = append(paths[s.Client], s.Path)
	}
	for _, s := range sources {
		if !found[s.Client] {
			w.note("%s has no file here: %s", s.Client.Name, strings.Join(paths[s.Client], ", "))
			found[s.Client] = true
		}
	}
}

// noteKept notes that the secrets of a server stay where they are, because the server was
// imported before. It notes nothing if secrets are not moved.
func (w *importing) noteKept(name string) {
	if keys := w.open[strings.ToLower(name)]; w.Refer != nil && len(keys) > 0 {
		w.note("%s is in the configuration already, with values that look like secrets: %s; remove the server there and import it again", name, strings.Join(keys, ", "))
	}
}

// keysOf returns the names of the values of secrets.
func keysOf(secrets []Secret) (keys []string) {
	for _, one := range secrets {
		keys = append(keys, one.Key)
	}
	return keys
}

// hasFile reports whether one of the files of a list is the file of a path.
func hasFile(all []string, path string) bool {
	fi, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(all, func(one string) bool {
		other, err := os.Stat(one)
		return err == nil && os.SameFile(fi, other)
	})
}
