package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// homes makes the private homes of servers, each once.
type homes struct{ made sync.Map }

// prepare makes a private home if there is none. It begins with what npx installed for the user of the packages that
// args name: a server may keep its data beside its code, and would otherwise seem to have lost it.
func (h *homes) prepare(home string, args, users []string) error {
	once, _ := h.made.LoadOrStore(home, sync.OnceValue(func() error {
		err := os.Mkdir(home, 0o700)
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.Join(os.MkdirAll(filepath.Dir(home), 0o700), os.Mkdir(home, 0o700))
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			return nil
		case err != nil:
			return fmt.Errorf("making its private home: %w", err)
		}
		for _, user := range users {
			seed(home, user, args)
		}
		return nil
	}))
	err := once.(func() error)()
	if err != nil {
		h.made.Delete(home) // the next start tries again
	}
	return err
}

// seed copies the directories in which npx keeps the named packages. A package that cannot be copied is downloaded
// again.
func seed(home, user string, args []string) {
	manifests, _ := filepath.Glob(filepath.Join(user, ".npm/_npx/*/package.json")) // the pattern is well-formed
	for _, path := range manifests {
		if !slices.ContainsFunc(installed(path), func(spec string) bool { return slices.Contains(args, spec) }) {
			continue
		}
		from := filepath.Dir(path)
		to := filepath.Join(home, ".npm/_npx", filepath.Base(from))
		if err := copyTree(from, to); err != nil {
			_ = os.RemoveAll(to) // half a package is worse than none
		}
	}
}

// installed returns the packages that npx was asked for when it made a directory.
func installed(manifest string) []string {
	var m struct {
		Npx struct {
			Packages []string `json:"packages"`
		} `json:"_npx"`
	}
	b, err := os.ReadFile(manifest)
	if err != nil || json.Unmarshal(b, &m) != nil {
		return nil
	}
	return m.Npx.Packages
}

// copyTree copies a whole directory, or leaves nothing at its destination.
func copyTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	part := to + ".part"
	if err := os.CopyFS(part, os.DirFS(from)); err != nil {
		_ = os.RemoveAll(part)
		return err
	}
	return os.Rename(part, to)
}
