package notice_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/doorward/doorward/internal/daemon/notice"
)

// serviceMode makes this test binary a notification service on the session bus: its value
// is what the service says that it can do.
const serviceMode = "DOORWARD_TEST_NOTIFICATIONS"

func TestMain(m *testing.M) {
	if can := os.Getenv(serviceMode); can != "" {
		desktopService(strings.Fields(can))
		return
	}
	os.Exit(m.Run())
}

// shown is one notice as the service got it.
type shown struct {
	App, Summary, Body string
	Actions            []string
}

type notifications struct{ can []string }

func (n notifications) GetCapabilities() ([]string, *dbus.Error) { return n.can, nil }

func (n notifications) Notify(app string, _ uint32, _, summary, body string, actions []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	line, _ := json.Marshal(shown{app, summary, body, actions})
	fmt.Println(string(line))
	return 1, nil
}

// desktopService takes the service's name on the bus and prints what it is to show.
func desktopService(can []string) {
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err == nil {
		err = conn.Export(notifications{can}, "/org/freedesktop/Notifications", "org.freedesktop.Notifications")
	}
	if err == nil {
		_, err = conn.RequestName("org.freedesktop.Notifications", dbus.NameFlagDoNotQueue)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// sessionBus runs a message bus of its own and returns its address.
func sessionBus(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon here: as root, run test/install.sh bus (Debian's package dbus-daemon)")
	}
	dir, err := os.MkdirTemp("", "dwbus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := "unix:path=" + filepath.Join(dir, "bus")
	start(t, "unix:path", exec.Command(bin, "--session", "--nofork", "--nopidfile", "--print-address", "--address="+address))
	return address
}

// start runs a program until the test ends, and waits for the first line that begins with
// word. It returns the lines after it.
func start(t *testing.T, word string, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), word) {
		t.Fatalf("%s said %q", cmd.Path, lines.Text())
	}
	return lines
}

func serviceOn(t *testing.T, address, can string) *bufio.Scanner {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{"DBUS_SESSION_BUS_ADDRESS=" + address, serviceMode + "=" + can}
	return start(t, "ready", cmd)
}

// TestTheDesktopShowsAHeldCall on a real bus, to a service in a process of its own: the
// names are inert, whether the service reads markup or not, there is nothing to press,
// and the arguments are not there.
func TestTheDesktopShowsAHeldCall(t *testing.T) {
	t.Parallel()
	hostile := "<a href=\"http://evil\">w\u202er&ite\n\x1b[31m" + strings.Repeat("x", 500)
	for can, body := range map[string]string{"body body-markup actions": "&lt;a href=", "body": "<a href="} {
		address := sessionBus(t)
		lines := serviceOn(t, address, can)
		var said bytes.Buffer
		n := notice.New(notice.Options{Desktop: address, Log: slog.New(slog.NewTextHandler(&said, nil))})
		n.Tell(notice.Call{N: 7, Expires: time.Now().Add(time.Hour), Client: "agent", Server: "files", Tool: hostile, Args: `{"canary":1}`})
		if !lines.Scan() {
			t.Fatalf("nothing is shown: %s", said.String())
		}
		n.Close()
		var s shown
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.App != "Doorward" || s.Summary != "Doorward holds call 7" || len(s.Actions) != 0 || said.Len() != 0 {
			t.Errorf("%+v, log %s", s, said.String())
		}
		if !strings.HasPrefix(s.Body, "files/"+body) || strings.ContainsAny(s.Body, "\u202e\x1b") || strings.Count(s.Body, "\n") != 1 || strings.Contains(s.Body, "canary") || len(s.Body) > 500 {
			t.Errorf("with %q: %q", can, s.Body)
		}
	}
}

// A bus without a notification service is of no desktop; one that is gone costs a line in
// the log.
func TestWithoutANotificationServiceTheCallWaitsAllTheSame(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{sessionBus(t): 0, "unix:path=/nowhere/bus": 1} {
		var said bytes.Buffer
		n := notice.New(notice.Options{Desktop: address, Log: slog.New(slog.NewTextHandler(&said, nil))})
		n.Tell(notice.Call{N: 1, Expires: time.Now().Add(time.Hour)})
		time.Sleep(300 * time.Millisecond)
		n.Close()
		if strings.Count(said.String(), "the operator was not told") != want {
			t.Errorf("%s: %q", address, said.String())
		}
	}
}
