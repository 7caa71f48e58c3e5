package listen

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// servePassed acts as a daemon that a service manager started.
func servePassed(path string) error {
	l, err := Open(context.Background(), Spec{Network: "unix", Addr: path}, Credential{}, Options{OnNotice: func(text string) { fmt.Println(text) }})
	if err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Println("listening", os.Getenv("LISTEN_FDS") == "", "bound by the manager", l.Binder() == os.Getppid())
	go (&http.Server{ConnContext: l.ConnContext, Handler: http.HandlerFunc(answer)}).Serve(l.Net())
	io.Copy(io.Discard, os.Stdin)
	return l.Close()
}

// manage binds a path as a service manager does with PassCredentials=yes, with
// a mode that is too wide.
func manage(t *testing.T, path string) *os.File {
	t.Helper()
	f := manageCarelessly(t, path)
	if err := syscall.SetsockoptInt(int(f.Fd()), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1); err != nil {
		t.Fatal(err)
	}
	return f
}

func manageCarelessly(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() { f.Close() })
	return f
}

// activate starts the daemon with the socket as descriptor 3. The shell expands pid, the
// value of LISTEN_PID: $$ is the daemon's own.
func activate(t *testing.T, socket *os.File, path, pid string) *helperProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=`+pid+` LISTEN_FDS=1 exec "$0" "$1"`, self, path)
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = []string{helperEnv + "=serve-passed"}, []*os.File{socket}, os.Stderr
	return launch(t, cmd)
}

// A client that connects to a passed socket while no daemon runs is served by the daemon
// that starts then. The next daemon serves the same socket.
func TestAPassedSocketIsServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	socket := manage(t, path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		client := start(t, nil, "ask", path)
		daemon := activate(t, socket, path, "$$")
		if got := daemon.line(t); got != "listening true bound by the manager true" {
			t.Fatalf("the daemon: %s", got)
		}
		if got := client.line(t); got != "HTTP/1.1 200 OK" {
			t.Errorf("the client that waited: %s", got)
		}
		daemon.in.Close()
		daemon.Wait()
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || after.Mode() != os.ModeSocket|0o600 {
			t.Errorf("the socket afterwards: %v, %v", after, err)
		}
	}
}

// A request of a child of the connector is not served on a passed socket.
func TestAPassedSocketKnowsItsWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	socket := manage(t, path)
	client := start(t, nil, "ask-by-a-child", path)
	activate(t, socket, path, "$$").line(t)
	if got := client.line(t); got != "HTTP/1.1 200 OK" {
		t.Fatalf("the connector itself: %s", got)
	}
	io.WriteString(client.in, "\n")
	if got := client.line(t); got != "closed" {
		t.Errorf("its child: %s", got)
	}
}

// A client that wrote before the daemon started is refused if the socket was bound without
// PassCredentials=yes, because the kernel does not name the writer. Later clients are served.
func TestAWaitingClientWithoutCredentialsIsTurnedAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	socket := manageCarelessly(t, path)
	early := start(t, nil, "dial", "unix", path)
	early.line(t)
	activate(t, socket, path, "$$").line(t)
	if got := early.line(t); got != "read 0 true" {
		t.Errorf("the client that waited: %s", got)
	}
	if got := start(t, nil, "ask", path).line(t); got != "HTTP/1.1 200 OK" {
		t.Errorf("a later one: %s", got)
	}
}

func TestASocketPassedToAnotherProcessIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	socket := manage(t, path)
	want := fmt.Sprintf("listener unix:%s refused: a process answers on %[1]s: the path is in use", path)
	if got := activate(t, socket, path, "1").line(t); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAPassedSocketOfAnotherPathIsNamedAndClosed(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	daemon := activate(t, manage(t, filepath.Join(dir, "other")), filepath.Join(dir, "s"), "$$")
	want := "the socket " + filepath.Join(dir, "other") + " was passed, and listen.unix names another: it is not served"
	if got := daemon.line(t); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := daemon.line(t); got != "listening true bound by the manager false" {
		t.Errorf("got %s", got)
	}
	if got := start(t, nil, "ask", filepath.Join(dir, "s")).line(t); got != "HTTP/1.1 200 OK" {
		t.Errorf("its own socket: %s", got)
	}
}

func TestAPassedSocketInAnOpenDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	socket := manage(t, path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	want := "listener unix:" + path + " refused: " + dir + " can be written by others (mode 0777)"
	if got := activate(t, socket, path, "$$").line(t); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
