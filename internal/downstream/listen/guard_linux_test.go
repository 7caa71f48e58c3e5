package listen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// serveHTTP serves h on l until the test ends.
func serveHTTP(t *testing.T, l *Listener, h http.HandlerFunc) {
	t.Helper()
	srv := &http.Server{ConnContext: l.ConnContext, Handler: h}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
}

func answer(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// A request that a child of the connector sends on the connector's connection is not served,
// and the connection ends. The connector's own second request is served.
func TestARequestOfAnotherProcessIsNotServed(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"ask": "HTTP/1.1 200 OK", "ask-by-a-child": "closed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := &heard{}
			l := openSocket(t, Options{OnRefused: h.hear})
			var served atomic.Int32
			serveHTTP(t, l, func(w http.ResponseWriter, r *http.Request) { served.Add(1); answer(w, r) })
			p := start(t, nil, mode, l.Addr())
			if got := p.line(t); got != "HTTP/1.1 200 OK" {
				t.Fatalf("the connector itself: %s", got)
			}
			io.WriteString(p.in, "\n")
			if got := p.line(t); got != want {
				t.Errorf("the second request: %s, want %s", got, want)
			}
			if want == "closed" {
				eventually(t, "the refusal is told", func() bool { return len(h.list()) > 0 && l.Refused()[ReasonOtherWriter] > 0 })
				if got := h.list(); len(got) != 1 || got[0] != ReasonOtherWriter || l.Refused()[ReasonOtherWriter] != 1 || served.Load() != 1 {
					t.Errorf("heard %q, counted %v, served %d", got, l.Refused(), served.Load())
				}
			}
			p.in.Close()
			eventually(t, "the seat is free", func() bool { return l.Open() == 0 })
		})
	}
}

// A connection that was hijacked from net/http, as for long answers, stays open while its
// connector lives, and ends when the connector is killed, also while a child of it still
// holds the connection.
func TestAStreamEndsWithItsConnector(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"ask-by-a-child", "ask-with-an-heir"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := openSocket(t, Options{})
			over := make(chan error, 1)
			serveHTTP(t, l, func(w http.ResponseWriter, r *http.Request) {
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				c.SetReadDeadline(time.Time{})
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
				go func() {
					_, err := c.Read(make([]byte, 1))
					c.Close()
					over <- err
				}()
			})
			p := start(t, nil, mode, l.Addr())
			if got := p.line(t); got != "HTTP/1.1 200 OK" {
				t.Fatal(got)
			}
			select {
			case err := <-over:
				t.Fatalf("the stream ended by itself: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			p.Process.Kill()
			select {
			case err := <-over:
				if mode == "ask-with-an-heir" && !errors.Is(err, net.ErrClosed) { // no end of the stream: the heir holds it
					t.Errorf("the stream ended with %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the stream outlived its connector")
			}
			eventually(t, "the seat is free", func() bool { return l.Open() == 0 })
		})
	}
}

// A connection ends when its connector exits, although a child still holds the descriptor
// and neither writes nor closes it. The exit is not counted as a refusal.
func TestAConnectionEndsWithItsConnector(t *testing.T) {
	t.Parallel()
	l := openSocket(t, Options{})
	conns := accepted(t, l)
	p := start(t, nil, "dial-and-leave-later", l.Addr())
	c := next(t, conns)
	io.WriteString(p.in, "\n")
	if got := p.line(t); got != "left" {
		t.Fatal(got)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("read %d bytes, %v; want the connection closed by the daemon", n, err)
	}
	eventually(t, "the seat is free", func() bool { return l.Open() == 0 })
	if len(l.Refused()) != 0 {
		t.Errorf("refused %v: a process that ends is no breach", l.Refused())
	}
}

func TestAnExpelledConnectionIsAnsweredOnceMore(t *testing.T) {
	t.Parallel()
	l := openSocket(t, Options{})
	serveHTTP(t, l, func(w http.ResponseWriter, r *http.Request) {
		From(r.Context()).Expel()
		w.WriteHeader(http.StatusUnauthorized)
	})
	p := start(t, nil, "ask", l.Addr())
	if got := p.line(t); !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("the answer: %s", got)
	}
	eventually(t, "the connection is over", func() bool { return l.Open() == 0 })
}

// Processes that the daemon started, directly or through a shell, are refused: they must not
// act as the user.
func TestTheDaemonsOwnChildrenAreRefused(t *testing.T) {
	t.Parallel()
	h := &heard{}
	self := int32(os.Getpid())
	l := openSocket(t, Options{OnRefused: h.hear,
		OwnChild: func(c *attest.Credentials) bool { return peer.DescendantOf(c.PID, self) }})
	conns := accepted(t, l)
	p := start(t, nil, "dial", "unix", l.Addr())
	p.line(t)
	if got := p.line(t); got != "read 0 true" {
		t.Errorf("the child %s", got)
	}
	// A grandchild by way of a shell.
	grandchild := exec.Command("/bin/sh", "-c", `"$0" unix "$1" & wait`, "/proc/self/exe", l.Addr())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	grandchild.Args[3] = exe
	grandchild.Env = []string{helperEnv + "=dial"}
	if err := grandchild.Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are refused", func() bool { return l.Refused()[ReasonOwnChild] == 2 })
	mine, err := net.Dial("unix", l.Addr()) // the daemon itself is not its child
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	next(t, conns)
	if got := h.list(); len(got) != 2 || got[0] != ReasonOwnChild {
		t.Errorf("heard %q", got)
	}
}

// A child for which OwnChild reports false is admitted.
func TestSomeChildrenMayBeLetIn(t *testing.T) {
	t.Parallel()
	l := openSocket(t, Options{OwnChild: func(c *attest.Credentials) bool { return false }})
	conns := accepted(t, l)
	start(t, nil, "dial", "unix", l.Addr())
	next(t, conns)
}

// A peer in a user namespace counts as the user that it is outside the namespace, at the
// accept and when it writes.
func TestAPeerInAUserNamespaceIsItsUserOutside(t *testing.T) {
	t.Parallel()
	needRoot(t)
	attr := func(host int) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 1}},
			Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}}
	}
	l := openSocket(t, Options{})
	reachable(t, l)
	serveHTTP(t, l, answer)
	other := start(t, attr(12345), "ask", l.Addr())
	if got := other.line(t); got != "closed" {
		t.Errorf("another user that calls itself root: %s", got)
	}
	if l.Refused()[ReasonOtherUser] != 1 {
		t.Errorf("counted %v", l.Refused())
	}
	ours := start(t, attr(0), "ask", l.Addr())
	if got := ours.line(t); got != "HTTP/1.1 200 OK" {
		t.Errorf("our own user in a namespace: %s", got)
	}
}

// With allowForeign a peer in another pid namespace is served, and its child is not.
func TestAForeignPeerThatIsAllowedIsGuarded(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := openSocket(t, Options{allowForeign: true})
	serveHTTP(t, l, answer)
	p := start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "ask-by-a-child", l.Addr())
	if got := p.line(t); got != "HTTP/1.1 200 OK" {
		t.Fatal(got)
	}
	io.WriteString(p.in, "\n")
	if got := p.line(t); got != "closed" {
		t.Errorf("its child: %s", got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// leavesNothing checks that f leaves neither descriptors nor goroutines.
func leavesNothing(t *testing.T, f func()) {
	t.Helper()
	before, goroutines := descriptors(t), runtime.NumGoroutine()
	f()
	eventually(t, fmt.Sprintf("no more than %d goroutines and %d descriptors are left", goroutines, before), func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= before
	})
}
