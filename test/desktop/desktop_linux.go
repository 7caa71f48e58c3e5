// Package desktop provides the session bus of a desktop for tests: the real dbus-daemon, with a
// notification service on it.
//
// Invariant: every bus belongs to one test, and ends with it.
package desktop

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

// Bus starts a separate message bus, the real dbus-daemon, and returns its address.
func Bus(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon here: as root, run test/install.sh bus (Debian's package dbus-daemon)")
	}
	dir, err := os.MkdirTemp("", "dwbus")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := "unix:path=" + filepath.Join(dir, "bus")
	cmd := exec.Command(bin, "--session", "--nofork", "--nopidfile", "--print-address", "--address="+address)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "unix:path") {
		t.Fatalf("the bus said %q: %v", line, err)
	}
	return address
}

// Shown is one notice that a notification service received.
type Shown struct {
	App, Summary, Body string
	Actions            []string
}

// notifications is a notification service (Desktop Notifications Specification 1.2).
type notifications struct {
	can   []string
	shown chan Shown
}

// GetCapabilities implements the method of the service.
func (n notifications) GetCapabilities() ([]string, *dbus.Error) { return n.can, nil }

// Notify implements the method of the service.
func (n notifications) Notify(app string, _ uint32, _, summary, body string, actions []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	n.shown <- Shown{app, summary, body, actions}
	return 1, nil
}

// Notifications starts a notification service with the capabilities can on a bus. It returns the
// received notices.
func Notifications(t *testing.T, address string, can ...string) <-chan Shown {
	t.Helper()
	conn, err := dbus.Connect(address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	n := notifications{can, make(chan Shown, 16)}
	must(t, conn.Export(n, "/org/freedesktop/Notifications", "org.freedesktop.Notifications"))
	_, err = conn.RequestName("org.freedesktop.Notifications", dbus.NameFlagDoNotQueue)
	must(t, err)
	return n.shown
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("preparing a desktop: %v", err)
	}
}
