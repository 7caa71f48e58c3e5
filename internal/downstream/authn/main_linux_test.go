package authn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The test binary acts as another process when helperEnv is set.
const helperEnv = "DOORWARD_AUTHN_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := helper(mode, os.Args[1:]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(mode string, args []string) error {
	switch mode {
	case "new": // directory, name...: one token each
		for _, name := range args[1:] {
			tok, _, err := NewStore(args[0]).NewToken(name, 0, "")
			if err != nil {
				return err
			}
			fmt.Println(tok)
		}
		return nil
	case "dial": // path
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("no such helper: %s", mode)
}

func run(t *testing.T, mode string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{helperEnv + "=" + mode}
	return cmd
}

const (
	envToken  = "environment-token-0123456789"
	fileToken = "file-token-0123456789abcdef"
)

func me() uint32 { return uint32(os.Geteuid()) }

// clock is a clock that the test advances.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is an Authenticator with all three sources of tokens, and the problems that it
// reported to the operator.
type world struct {
	*Authenticator
	clock *clock
	store *Store
	dir   string
	file  string

	mu       sync.Mutex
	problems []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{clock: newClock(), dir: filepath.Join(dir, "state"), file: filepath.Join(dir, "token")}
	w.store = NewStore(w.dir)
	writeToken(t, w.file, fileToken+"\n")
	w.start()
	return w
}

func (w *world) start() {
	w.Authenticator = New(Options{UID: me(), Env: secret.New(envToken), File: w.file, Store: w.store, Now: w.clock.Now,
		OnProblem: func(s string, _ bool) { w.mu.Lock(); defer w.mu.Unlock(); w.problems = append(w.problems, s) }})
}

// heard returns the problems reported since the last call.
func (w *world) heard() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.problems, "\n")
	w.problems = nil
	return all
}

func writeToken(t testing.TB, path, text string) {
	t.Helper()
	fresh := path + ".new"
	if err := errors.Join(os.WriteFile(fresh, []byte(text), 0o600), os.Rename(fresh, path)); err != nil {
		t.Fatal(err)
	}
}

func mustNew(t testing.TB, s *Store, name string, expires time.Duration, scope string) (token, id string) {
	t.Helper()
	token, id, err := s.NewToken(name, expires, scope)
	if err != nil {
		t.Fatal(err)
	}
	return token, id
}

func (w *world) ask(c *Caller, authorization ...string) (string, error) {
	p, err := w.Authenticate(c, authorization)
	if (err == nil) != p.Valid() {
		panic("neither a principal nor an error, or both")
	}
	return p.Name(), err
}

func enforced() *Caller {
	return &Caller{Enforce: true, Listener: "0.0.0.0:1", Remote: addr("192.0.2.1")}
}

// peerOf starts a process that connects to a Unix socket, and returns its credentials.
func peerOf(t *testing.T, prepare func(*exec.Cmd)) *attest.Credentials {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o777)
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(path, 0o666)
	cmd := run(t, "dial", path)
	prepare(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	l.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	creds, err := attest.OfUnix(c.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { creds.Close() })
	return creds
}

func grades(p *principal.Principal) map[string]string {
	m := map[string]string{}
	for _, f := range p.Facts() {
		m[f.Name] = f.Grade.String()
	}
	return m
}
