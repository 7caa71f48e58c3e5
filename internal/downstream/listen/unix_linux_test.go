package listen

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheSocketIsPrivate(t *testing.T) {
	t.Parallel()
	run := filepath.Join(shortDir(t), "run", "doorward")
	l := mustOpen(t, Spec{Network: "unix", Addr: "auto"}, Credential{}, Options{RuntimeDir: run})
	for path, want := range map[string]fs.FileMode{
		run:                                      fs.ModeDir | 0o700,
		filepath.Join(run, "doorward.sock"):      fs.ModeSocket | 0o600,
		filepath.Join(run, "doorward.sock.lock"): 0o600,
	} {
		if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, fi.Mode(), err, want)
		}
	}
	if want := "unix:" + filepath.Join(run, "doorward.sock"); l.URL() != want || !l.Local() {
		t.Errorf("URL %s, local %v", l.URL(), l.Local())
	}
	l.Close()
	if _, err := os.Lstat(l.Addr()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there after Close: %v", err)
	}
}

func TestOurOwnConnectionIsAttested(t *testing.T) {
	t.Parallel()
	l := openSocket(t, Options{})
	conns := accepted(t, l)
	h := start(t, nil, "dial", "unix", l.Addr())
	c := next(t, conns)
	o := originOf(l, c)
	if o.Listener != l || o.Peer.UID != uint32(os.Geteuid()) || int(o.Peer.PID) != h.Process.Pid || !o.Peer.Alive() {
		t.Errorf("%+v", o.Peer)
	}
	if _, ok := c.(interface {
		ReadMsgUnix(b, oob []byte) (int, int, int, *net.UnixAddr, error)
	}); ok {
		t.Error("the connection has a method that reads without the check")
	}
	c.Close()
	if o.Peer.Alive() {
		t.Error("the process is still held after the connection was closed")
	}
}

// reachable lets every user connect to the socket, so that only the check at the accept can
// refuse.
func reachable(t *testing.T, l *Listener) {
	t.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(l.Addr()), 0o711), os.Chmod(l.Addr(), 0o666)); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherUserIsTurnedAwayAndTheLoopGoesOn(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, tc := range []struct {
		uid    uint32
		reason string
	}{{12345, ReasonOtherUser}, {65534, ReasonUnattested}} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			h := &heard{}
			l := openSocket(t, Options{OnRefused: h.hear})
			reachable(t, l)
			conns := accepted(t, l)
			other := start(t, asUID(tc.uid), "dial", "unix", l.Addr())
			other.line(t)
			if got := other.line(t); got != "read 0 true" {
				t.Errorf("the other user %s", got)
			}
			eventually(t, "the refusal is heard", func() bool { return len(h.list()) == 1 })
			if got := h.list(); got[0] != tc.reason || l.Refused()[tc.reason] != 1 || l.Open() != 0 {
				t.Errorf("heard %q, counted %v, %d open", got, l.Refused(), l.Open())
			}
			start(t, nil, "dial", "unix", l.Addr())
			if o := originOf(l, next(t, conns)); o.Peer.UID != 0 {
				t.Errorf("%+v", o.Peer)
			}
		})
	}
}

func TestTheDirectoryKeepsOthersOut(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := openSocket(t, Options{})
	h := start(t, asUID(12345), "dial", "unix", l.Addr())
	if got := h.line(t); !strings.Contains(got, "permission denied") {
		t.Errorf("another user: %s", got)
	}
}

func TestADeadConnectorIsTurnedAway(t *testing.T) {
	t.Parallel()
	h := &heard{}
	l := openSocket(t, Options{OnRefused: h.hear})
	// The listener hands this one out first, so that the next one waits.
	blocker, err := net.Dial("unix", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	eventually(t, "the first has a seat", func() bool { return l.Open() == 1 })
	leaver := start(t, nil, "dial-and-leave", l.Addr())
	leaver.line(t)
	leaver.Process.Wait()
	conns := accepted(t, l)
	next(t, conns)
	eventually(t, "the heir is refused", func() bool { return l.Refused()[ReasonUnattested] == 1 })
}

func TestAForeignNamespaceIsTurnedAwayUnlessAllowed(t *testing.T) {
	t.Parallel()
	needRoot(t)
	newPID := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	strict := openSocket(t, Options{})
	accepted(t, strict)
	start(t, newPID, "dial", "unix", strict.Addr())
	eventually(t, "the container is refused", func() bool { return strict.Refused()[ReasonForeign] == 1 })

	open := openSocket(t, Options{allowForeign: true})
	conns := accepted(t, open)
	start(t, newPID, "dial", "unix", open.Addr())
	if o := originOf(open, next(t, conns)); !o.Peer.Foreign {
		t.Errorf("%+v", o.Peer)
	}
}

// Open replaces only a stale socket of its own user. Anything else in its place, an unsafe
// directory or an unsafe lock file is refused, and the file stays.
func TestOnlyAStaleOwnSocketIsReplaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		stage func(t *testing.T, path string)
		ok    bool
	}{
		{"nothing", func(*testing.T, string) {}, true},
		{"a stale socket", func(t *testing.T, path string) { leaveSocket(t, path) }, true},
		{"a stale socket and its lock file", func(t *testing.T, path string) {
			leaveSocket(t, path)
			os.WriteFile(path+".lock", nil, 0o600)
		}, true},
		{"a live socket of a process without the lock", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, false},
		{"a regular file", func(t *testing.T, path string) { os.WriteFile(path, []byte("precious"), 0o600) }, false},
		{"a directory", func(t *testing.T, path string) { os.Mkdir(path, 0o700) }, false},
		{"a pipe", func(t *testing.T, path string) { syscall.Mkfifo(path, 0o600) }, false},
		{"a link to a stale socket", func(t *testing.T, path string) {
			leaveSocket(t, path+"2")
			os.Symlink(path+"2", path)
		}, false},
		{"a dangling link", func(t *testing.T, path string) { os.Symlink(path+"-nowhere", path) }, false},
		{"a link as lock file", func(t *testing.T, path string) { os.Symlink("/etc/passwd", path+".lock") }, false},
		{"a socket of another user", func(t *testing.T, path string) {
			leaveSocket(t, path)
			chown(t, path)
		}, false},
		{"a lock file of another user", func(t *testing.T, path string) {
			os.WriteFile(path+".lock", nil, 0o600)
			chown(t, path+".lock")
		}, false},
		{"a lock file that others may write to", func(t *testing.T, path string) {
			os.WriteFile(path+".lock", nil, 0o600)
			os.Chmod(path+".lock", 0o666)
		}, false},
		{"a directory of another user", func(t *testing.T, path string) { chown(t, filepath.Dir(path)) }, false},
		{"a directory for all, like /tmp", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o1777) }, false},
		{"a directory that the group may write to", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o770) }, false},
		{"a directory that others may read", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o755) }, true},
		{"a directory that others may write to", func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o777) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(shortDir(t), "s")
			tc.stage(t, path)
			before, _ := os.Lstat(path)
			l, err := Open(t.Context(), Spec{Network: "unix", Addr: path}, Credential{}, Options{})
			if tc.ok {
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Addr != "unix:"+path {
				t.Fatalf("got %v", err)
			}
			after, _ := os.Lstat(path)
			if before != nil && (after == nil || !os.SameFile(before, after)) {
				t.Error("the file in the way was changed")
			}
		})
	}
}

func chown(t *testing.T, path string) {
	t.Helper()
	needRoot(t)
	if err := os.Lchown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
}

func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
}

func TestASymlinkedDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := errors.Join(os.Mkdir(dir+"/real", 0o700), os.Symlink(dir+"/real", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(t.Context(), Spec{Network: "unix", Addr: dir + "/link/s"}, Credential{}, Options{}); err == nil {
		l.Close()
		t.Error("opened behind a link")
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	h := start(t, nil, "listen", path)
	if got := h.line(t); got != "listening" {
		t.Fatal(got)
	}
	spec := Spec{Network: "unix", Addr: path}
	_, err := Open(t.Context(), spec, Credential{}, Options{})
	if err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Fatalf("beside a live daemon: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the live daemon lost its socket: %v", err)
	} else {
		c.Close()
	}
	// A killed daemon leaves its socket and lock file; the next one replaces the socket.
	h.Process.Kill()
	h.Process.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	mustOpen(t, spec, Credential{}, Options{})
}

// Close does not remove a file that has replaced the socket.
func TestCloseRemovesOnlyItsOwnSocket(t *testing.T) {
	t.Parallel()
	l := openSocket(t, Options{})
	path := l.Addr()
	if err := errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other file is gone: %v", err)
	}
}

func TestALongPathSaysSo(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	name := strings.Repeat("n", 107-len(dir)-1)
	mustOpen(t, Spec{Network: "unix", Addr: filepath.Join(dir, name)}, Credential{}, Options{})
	_, err := Open(t.Context(), Spec{Network: "unix", Addr: filepath.Join(dir, name+"n")}, Credential{}, Options{})
	if err == nil || !strings.Contains(err.Error(), "108 bytes") || !strings.Contains(err.Error(), "107") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), Spec{Network: "unix", Addr: "auto"}, Credential{}, Options{}); err == nil {
		t.Error("auto without a runtime directory was accepted")
	}
}

// A path that begins with an at sign is a file, not an abstract socket, which would have no
// owner and no mode.
func TestThereAreNoAbstractSockets(t *testing.T) {
	dir := shortDir(t)
	t.Chdir(dir)
	l := mustOpen(t, Spec{Network: "unix", Addr: "@s"}, Credential{}, Options{})
	if fi, err := os.Lstat(filepath.Join(dir, "@s")); err != nil || fi.Mode().Type() != fs.ModeSocket {
		t.Errorf("bound %s: %v, %v", l.Addr(), fi, err)
	}
}

func TestHTTPIsServedWithTheOriginInTheContext(t *testing.T) {
	t.Parallel()
	for _, l := range []*Listener{openSocket(t, Options{}), openLoopback(t, Options{})} {
		srv := &http.Server{ConnContext: l.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o := From(r.Context())
			switch {
			case o == nil || o.Listener != l || !o.HostAllowed(r.Host):
				w.WriteHeader(http.StatusForbidden)
			case l.Network == "unix" && (o.Peer == nil || !o.Peer.Alive()):
				w.WriteHeader(http.StatusUnauthorized)
			}
		})}
		go srv.Serve(l.Net())
		defer srv.Close()
		host := l.Addr()
		if l.Network == "unix" {
			host = "doorward"
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return net.Dial(l.Network, l.Addr()) }}}
		resp, err := client.Get("http://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", l.URL(), resp.Status)
		}
		eventually(t, "no connection is left", func() bool { return l.Open() == 0 })
	}
}

func TestAStrangersConnectionHasNoOrigin(t *testing.T) {
	t.Parallel()
	l, other := openSocket(t, Options{}), openSocket(t, Options{})
	conns := accepted(t, other)
	client, err := net.Dial("unix", other.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if o := originOf(l, next(t, conns)); o != nil {
		t.Errorf("a connection of another listener: %+v", o)
	}
	if o := originOf(l, client); o != nil {
		t.Errorf("a connection of no listener: %+v", o)
	}
	if o := From(context.Background()); o != nil || o.HostAllowed("localhost") || o.OriginAllowed("") {
		t.Errorf("no connection at all: %+v", o)
	}
}
