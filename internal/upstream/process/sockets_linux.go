package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// engineSockets returns the paths of engines that exist now, and those without a star.
func engineSockets(homes []string) []string {
	host := listings{FS: os.DirFS("/"), known: map[string][]fs.DirEntry{}}
	var all []string
	for _, pattern := range engines {
		all = append(all, host.match("/", pattern)...)
	}
	for _, home := range homes {
		inside := listings{FS: os.DirFS(home), known: map[string][]fs.DirEntry{}}
		for _, pattern := range homeEngines {
			all = append(all, inside.match(home, pattern)...)
		}
	}
	return all
}

// listings reads each directory once.
type listings struct {
	fs.FS
	known map[string][]fs.DirEntry
}

func (l listings) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, known := l.known[name]
	if known {
		return entries, nil
	}
	entries, err := fs.ReadDir(l.FS, name)
	l.known[name] = entries
	return entries, err
}

// match returns the paths that match a pattern below root.
func (l listings) match(root, pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{filepath.Join(root, pattern)}
	}
	names, _ := fs.Glob(l, strings.TrimPrefix(pattern, "/")) // the patterns are well-formed
	return pathsBelow(root, names)
}

// sockets returns covers for the sockets that are granted by name in a directory of engines, and not by write.
func (all layers) sockets(c cover) []cover {
	var found []cover
	for _, l := range all {
		if c.engine && l.explicit() && l.kind != writeLayer && below(l.path, c.path) && isSocket(l.fd) {
			found = append(found, cover{path: l.path, engine: true})
		}
	}
	return found
}
