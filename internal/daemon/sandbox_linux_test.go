package daemon

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// TestVariablesOfSocketsGrantNothing: a variable that names a socket of the session, or a directory of them, adds no
// path to the sandbox, in whatever form it names it. status says what would.
func TestVariablesOfSocketsGrantNothing(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dw") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := dir + "/bus"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	values := []string{socket, dir, "unix:path=" + socket, "unix:path=" + socket + ",guid=1", "unix://" + socket, "x=" + socket, socket + ",1,0",
		socket + ":1:1", "file://" + socket, dir + ":" + dir}
	for _, name := range append(socketVariables, "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS") {
		for _, value := range values {
			s := &config.Server{Kind: "stdio", Env: map[string]secret.Value{name: secret.New(value)}, Doorward: config.Handling{Sandbox: process.Contain}}
			box := sandboxOf(&config.Config{}, "home", s)
			if len(box.Named) > 0 || len(box.Listed) > 0 {
				t.Errorf("%s=%s grants %v %v", name, value, box.Named, box.Listed)
			}
			hints := strings.Join(new(unseen).of("s", s, box), "\n")
			if !strings.Contains(hints, dir) || !strings.Contains(hints, name) || !strings.Contains(hints, "write: ["+dir) {
				t.Errorf("%s=%s: status says %q", name, value, hints)
			}
			s.Doorward.Write = []string{dir, socket}
			if hints := new(unseen).of("s", s, sandboxOf(&config.Config{}, "home", s)); len(hints) > 0 {
				t.Errorf("%s=%s is granted, and status says %q", name, value, hints)
			}
		}
	}
}
