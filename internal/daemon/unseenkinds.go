package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// newFiles returns, for each path that a server is to make in a directory that it does not see,
// the key that grants this directory. In the home it makes the file in its own.
func newFiles(box process.Sandbox, granted, never []string, home string) []string {
	var hints []string
	for _, path := range box.Named {
		dir := filepath.Dir(path)
		if dir == home || slices.Contains(roots, dir) || within(slices.Concat(ordinary, granted, never, box.Hide), dir) {
			continue
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && isDir(dir) {
			hints = append(hints, path+": it does not exist; write: ["+dir+"] lets the server make it")
		}
	}
	return hints
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// browserHint returns the key that lets the browser of a server build its own sandbox, nothing
// for a server that starts none, or starts it without one.
func browserHint(s *config.Server, box process.Sandbox, home string) []string {
	var browsers process.Sandbox
	browsers.Grant([]string{"browsers"}, nil, home)
	starts := slices.ContainsFunc(known(s, home), func(path string) bool { return slices.Contains(browsers.Read, path) })
	if !starts || box.Nested || box.Mode != process.Contain || slices.ContainsFunc(s.Args, func(a secret.Value) bool { return strings.Contains(a.Reveal(), "no-sandbox") }) {
		return nil
	}
	return []string{"namespaces for the sandbox of its browser: read: [browsers] grants them; or start the browser with --no-sandbox"}
}
