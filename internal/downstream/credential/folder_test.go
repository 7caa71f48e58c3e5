package credential_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/downstream/credential"
)

// A directory that is not private to the user, or is a link or another file, is refused:
// nothing is written to it, found in it, swept from it or removed from it.
func TestADirectoryThatIsNotPrivateIsRefused(t *testing.T) {
	t.Parallel()
	at := func(where string, mode uint32) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { must(t, syscall.Chmod(filepath.Join(dir, where), mode)) }
	}
	give := func(where string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { must(t, os.Lchown(filepath.Join(dir, where), 12345, 12345)) }
	}
	// link replaces a directory by a link to it; the directory itself is valid.
	link := func(where string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, where)
			real := filepath.Join(filepath.Dir(dir), "real")
			must(t, os.Rename(path, real))
			must(t, os.Symlink(real, path))
		}
	}
	inside := func(t *testing.T, dir string) {
		must(t, os.Rename(filepath.Join(dir, "sessions"), filepath.Join(dir, "real")))
		must(t, os.Symlink("real", filepath.Join(dir, "sessions")))
	}
	file := func(t *testing.T, dir string) {
		must(t, os.RemoveAll(filepath.Join(dir, "sessions")))
		must(t, os.WriteFile(filepath.Join(dir, "sessions"), nil, 0o600))
	}
	pipe := func(t *testing.T, dir string) {
		must(t, os.RemoveAll(filepath.Join(dir, "sessions")))
		must(t, syscall.Mkfifo(filepath.Join(dir, "sessions"), 0o700))
	}
	for what, tc := range map[string]struct {
		do   func(t *testing.T, dir string)
		root bool
	}{
		"everybody may look into it":               {do: at("sessions", 0o755)},
		"everybody may enter it":                   {do: at("sessions", 0o711)},
		"the group may write to it":                {do: at("sessions", 0o770)},
		"everybody may write to it":                {do: at("sessions", 0o777)},
		"everybody may write to it, and sticky":    {do: at("sessions", 0o1777)},
		"it is a link":                             {do: link("sessions")},
		"it is a link that stays inside":           {do: inside},
		"it is a file":                             {do: file},
		"it is a pipe":                             {do: pipe},
		"it is another user's":                     {do: give("sessions"), root: true},
		"the runtime directory is a link":          {do: link("")},
		"the runtime directory is open to all":     {do: at("", 0o777)},
		"the runtime directory is like /tmp":       {do: at("", 0o1777)},
		"the runtime directory is open to a group": {do: at("", 0o770)},
		"the runtime directory is another user's":  {do: give(""), root: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root to give a directory to another user")
			}
			dir := runtimeDir(t)
			bait := write(t, dir, session(1))
			tc.do(t, dir)
			parent := filepath.Dir(dir)
			before := tree(t, parent)
			if path, err := credential.Write(dir, session(2)); err == nil || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("written to %s, %v", path, err)
			}
			for _, d := range []string{dir, dir + "/"} {
				if f, _, err := credential.Find(d, nil); err == nil || errors.Is(err, credential.ErrNone) || f != (credential.File{}) {
					t.Errorf("found %+v, %v", f, err)
				}
			}
			if n, err := credential.Sweep(dir, func(string) bool { return true }); err == nil || n != 0 {
				t.Errorf("swept %d, %v", n, err)
			}
			if err := credential.Remove(dir, session(1).SessionID); err == nil {
				t.Error("removed from it")
			}
			if after := tree(t, parent); !slices.Equal(before, after) {
				t.Errorf("there was %v, and now %v (%s)", before, after, bait)
			}
		})
	}
}

// tree returns the paths of everything below dir.
func tree(t *testing.T, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		out = append(out, path)
		return err
	}))
	return out
}
