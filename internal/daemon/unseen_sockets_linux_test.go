package daemon

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// listenIn listens on a socket in a new directory with the name of one of tmux, of which all are
// engines, and on one beside it, which is none.
func listenIn(t *testing.T) (engine, other string) {
	t.Helper()
	for i, pattern := range []string{"tmux-dw", "dw"} {
		dir, err := os.MkdirTemp("/tmp", pattern)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		l, err := net.Listen("unix", dir+"/s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if i == 0 {
			engine = dir + "/s"
		} else {
			other = dir + "/s"
		}
	}
	return engine, other
}

// TestStatusNamesSocketsThatNamingDoesNotGrant: a socket of engines that an argument, an ordinary
// variable or read names has a hint, until write names it or the listed directory that it is in.
// A socket of another kind is granted by its name and has none.
func TestStatusNamesSocketsThatNamingDoesNotGrant(t *testing.T) {
	t.Parallel()
	engine, other := listenIn(t)
	for what, name := range map[string]func(s *config.Server, path string){
		"args": func(s *config.Server, path string) { s.Args = []secret.Value{secret.New(path)} },
		"env":  func(s *config.Server, path string) { s.Env = map[string]secret.Value{"SOCKET": secret.New(path)} },
		"read": func(s *config.Server, path string) { s.Doorward.Read = []string{path} },
	} {
		for _, path := range []string{engine, other} {
			for _, write := range []string{"", "/tmp", filepath.Dir(path), path} {
				s := &config.Server{Kind: "stdio", Doorward: config.Handling{Sandbox: process.Contain}}
				name(s, path)
				if write != "" {
					s.Doorward.Write = []string{write}
				}
				hints := strings.Join(new(unseen).of("s", s, sandboxOf(&config.Config{}, "home", s)), "\n")
				want := path == engine && slices.Contains([]string{"", "/tmp"}, write)
				if strings.Contains(hints, "write: ["+path+"]") != want || !want && hints != "" {
					t.Errorf("%s %s, write: [%s]: status says %q, want a hint: %v", what, path, write, hints, want)
				}
			}
		}
	}
}

// TestHintsOfSocketVariablesAreCleared: the hint for a variable of sockets is gone once the server
// has what it says: a socket itself or the directory that it is listed with, and for a variable
// that names a directory a path in it.
func TestHintsOfSocketVariablesAreCleared(t *testing.T) {
	t.Parallel()
	engine, other := listenIn(t)
	for _, socket := range []string{engine, other} {
		dir := filepath.Dir(socket)
		for _, value := range []string{socket, dir} {
			for _, write := range []string{"", "/tmp/absent", dir, socket} {
				s := &config.Server{Kind: "stdio", Env: map[string]secret.Value{"TMUX_TMPDIR": secret.New(value)}, Doorward: config.Handling{Sandbox: process.Contain}}
				if write != "" {
					s.Doorward.Write = []string{write}
				}
				hints := new(unseen).of("s", s, sandboxOf(&config.Config{}, "home", s))
				if want := write != dir && write != socket; (len(hints) > 0) != want {
					t.Errorf("%s, write: [%s]: status says %q, want a hint: %v", value, write, hints, want)
				}
			}
		}
	}
}
