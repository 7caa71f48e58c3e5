package spawn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

// TestMain runs the test binary as an agent, a caller, a daemon or an orphan, by its first
// argument.
func TestMain(m *testing.M) {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		roles := map[string]func([]string) int{
			"as-agent": asAgent, "as-caller": asCaller, "as-daemon": asDaemon, "as-orphan": asOrphan,
		}
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// asAgent does what the lines of its prompt say.
func asAgent([]string) int {
	prompt := must(io.ReadAll(os.Stdin))
	for line := range strings.Lines(string(prompt)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "say":
			fmt.Println(rest)
		case "ask":
			fmt.Println(ask(os.Getenv("DOORWARD_RUNTIME_DIR")+"/doorward.sock", token(os.Getenv("DOORWARD_TOKEN_FILE"))))
		case "ask-with":
			fmt.Println(ask(os.Getenv("DOORWARD_RUNTIME_DIR")+"/doorward.sock", rest))
		case "ask-tcp":
			fmt.Println(ask(rest, token(os.Getenv("DOORWARD_TOKEN_FILE"))))
		case "grandchild": // asks from below, orphaned and in a session of its own
			c := exec.Command(os.Args[0], "as-orphan", os.Getenv("DOORWARD_RUNTIME_DIR")+"/doorward.sock", token(os.Getenv("DOORWARD_TOKEN_FILE")))
			out, err := c.CombinedOutput()
			fmt.Print(string(out))
			if err != nil {
				fmt.Println(err)
			}
		case "daemonise":
			c := exec.Command("/bin/sh", "-c", `setsid sleep 1000 >/dev/null 2>&1 <&- & `)
			if err := c.Run(); err != nil {
				fmt.Println(err)
			}
		case "shell":
			out, _ := exec.Command("/bin/sh", "-c", rest).CombinedOutput()
			fmt.Print(string(out))
		case "environment":
			for _, v := range os.Environ() {
				fmt.Println("env", v)
			}
		case "arguments":
			for i, a := range os.Args {
				fmt.Printf("arg %d %q\n", i, a)
			}
		case "flood":
			n, _ := strconv.Atoi(rest)
			block := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
			for range n {
				os.Stdout.Write(block)
			}
		case "ignore":
			signal.Ignore(syscall.SIGTERM)
		case "wait":
			d, _ := time.ParseDuration(rest)
			time.Sleep(d)
		case "exit":
			n, _ := strconv.Atoi(rest)
			return n
		}
	}
	return 0
}

// asOrphan asks from a process whose parent has ended.
func asOrphan(args []string) int {
	if len(args) == 2 {
		c := exec.Command(os.Args[0], append([]string{"as-orphan", strconv.Itoa(os.Getpid())}, args...)...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			log.Print(err)
			return 1
		}
		return 0
	}
	for strconv.Itoa(os.Getppid()) == args[0] {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("orphan", ask(args[1], args[2]))
	return 0
}

// asCaller asks from a process that is in no agent's tree.
func asCaller(args []string) int {
	fmt.Println(ask(args[0], args[1]))
	return 0
}

func token(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// ask makes one request and returns status and body, or why there is none.
func ask(where, token string) string {
	network := "tcp"
	if filepath.IsAbs(where) {
		network = "unix"
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, where)
	}}, Timeout: 10 * time.Second}
	host := "doorward"
	if network == "tcp" {
		host = where
	}
	r := must(http.NewRequest(http.MethodGet, "http://"+host+"/", nil))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		return "closed: " + err.Error()
	}
	defer resp.Body.Close()
	return strconv.Itoa(resp.StatusCode) + " " + string(must(io.ReadAll(resp.Body)))
}

// book is the part of mail.Book that spawning needs, in memory.
type book struct {
	mu    sync.Mutex
	open  map[string]mail.Spawn
	runs  []string
	ends  map[string]mail.SpawnEnd
	fails int // so many calls fail
	heard chan string
}

func newBook() *book {
	return &book{open: map[string]mail.Spawn{}, ends: map[string]mail.SpawnEnd{}, heard: make(chan string, 100)}
}

var errStore = &mail.Error{Code: mail.StoreUnavailable}

func (b *book) SpawnRuns(_ context.Context, id string, _ mail.Note[mail.Spawn]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, id)
	return nil
}

func (b *book) EndSpawn(_ context.Context, id string, e mail.SpawnEnd, _ mail.Note[mail.Spawn]) (*mail.Spawn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails > 0 {
		b.fails--
		return nil, errStore
	}
	if _, twice := b.ends[id]; twice {
		return nil, fmt.Errorf("%s was ended twice", id)
	}
	b.ends[id] = e
	delete(b.open, id)
	b.heard <- id
	return &mail.Spawn{ID: id}, nil
}

func (b *book) OpenSpawns(context.Context) ([]mail.Spawn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []mail.Spawn
	for _, s := range b.open {
		all = append(all, s)
	}
	return all, nil
}

func (b *book) end(id string) (mail.SpawnEnd, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.ends[id]
	return e, ok
}

// stage is a manager with the listeners and the authentication of the daemon, and one page
// that names the caller.
type stage struct {
	t *testing.T
	*Manager
	book   *book
	runner *process.Runner
	dir    string
	sock   string
	tcp    string
	parent *principal.Principal
	n      int

	mu      sync.Mutex
	refused []string
}

func self() string { return must(os.Executable()) }

// helper is a launcher of an agent that does what its prompt says.
func (s *stage) helper(mode string) *Launcher {
	return &Launcher{Name: "helper", Path: self(), Args: []string{"as-agent"}, Cwd: s.dir + "/work", Roots: []string{s.dir + "/work"},
		Rights: []string{"server:notes"}, Models: []string{"small", "large"}, Seconds: 60, Children: 2, Messages: 10, Output: 1 << 20,
		Env:     map[string]string{"DECLARED": "yes", "GORACE": "atexit_sleep_ms=0"},
		Sandbox: process.Sandbox{Mode: mode, Limits: process.Limits{Memory: 1 << 30, Processes: 200, Files: 256}}}
}

func newStage(t *testing.T, mode string) *stage {
	t.Helper()
	// Not below /tmp: the path of a socket must be short, and a contained agent has its own /tmp.
	dir := must(filepath.EvalSymlinks(must(os.MkdirTemp("/var/tmp", "dw"))))
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"/run", "/state", "/work", "/other"} {
		if err := os.Mkdir(dir+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/state/seal.key", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	runner, err := process.NewRunner(process.Options{Hide: []string{dir + "/run", dir + "/state"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, book: newBook(), runner: runner, dir: dir,
		parent: principal.New(principal.UID(uint32(os.Geteuid()))).WithLocal()}
	s.Manager = New(Options{Runner: runner, Book: s.book, StateDir: dir + "/state", RuntimeDir: dir + "/run",
		Socket: dir + "/run/doorward.sock", TokenPrefix: authn.SpawnToken, DaemonKey: "a-public-key"})
	s.launchers(s.helper(mode))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		s.Close(ctx)
		if err := runner.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s.serve()
	return s
}

func (s *stage) launchers(all ...*Launcher) {
	m := map[string]*Launcher{}
	for _, l := range all {
		m[l.Name] = l
	}
	s.SetLaunchers(m)
}

// serve opens the listeners as the daemon does.
func (s *stage) serve() {
	s.t.Helper()
	self := int32(os.Getpid())
	auth := authn.New(authn.Options{UID: uint32(os.Geteuid()), Spawned: func(id string) *authn.Spawned {
		r := s.Find(id)
		if r == nil {
			return nil
		}
		return &authn.Spawned{ID: r.ID, Launcher: r.Launcher, Rights: r.Rights, Parent: r.Parent, Digest: r.Digest}
	}})
	o := listen.Options{RuntimeDir: s.dir + "/run",
		Spawned: func(c *attest.Credentials) string {
			if !peer.DescendantOf(c.PID, self) {
				return ""
			}
			return s.TreeOf(int(c.PID))
		},
		OwnChild: func(c *attest.Credentials) bool {
			return s.runner.Alive() > 0 && !isCaller(c.PID) && peer.DescendantOf(c.PID, self)
		},
		Holders:   peer.NewHolders(self),
		OnRefused: func(r listen.Refusal) { s.mu.Lock(); defer s.mu.Unlock(); s.refused = append(s.refused, r.Reason) }}
	for _, spec := range []listen.Spec{{Network: "unix", Addr: "auto"}, {Network: "tcp", Addr: "127.0.0.1:0"}} {
		l, err := listen.Open(context.Background(), spec, listen.Credential{}, o)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { l.Close() })
		if spec.Network == "tcp" {
			s.tcp = l.Addr()
		} else {
			s.sock = l.Addr()
		}
		srv := &http.Server{ConnContext: l.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o := listen.From(r.Context())
			c := &authn.Caller{Unix: o.Peer, Spawn: o.Spawn, Loopback: o.Listener.Loopback, Enforce: o.Listener.AuthEnforced,
				OwnerKnown: o.Owner == listen.OwnerSame, OwnerUID: o.OwnerUID}
			p, err := auth.Authenticate(c, r.Header["Authorization"])
			if err != nil {
				http.Error(w, "nobody", http.StatusUnauthorized)
				return
			}
			scope, _ := p.Fact("scope")
			fmt.Fprintf(w, "%s scope=%s parent=%s", p.Name(), scope.Value, p.Parent().Name())
		})}
		go srv.Serve(l.Net())
		s.t.Cleanup(func() { srv.Close() })
	}
}

// isCaller reports whether a process is a caller of the tests, a kind of child that the daemon
// does not have.
func isCaller(pid int32) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Contains(string(b), "as-caller")
}

// outside asks from a process of the same user that is in no agent's tree.
func (s *stage) outside(where, token string) string {
	s.t.Helper()
	c := exec.Command(self(), "as-caller", where, token)
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := c.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// begin makes the entry of the book and starts the agent.
func (s *stage) begin(parent *principal.Principal, r Request) (string, error) {
	s.t.Helper()
	if r.Launcher == "" {
		r.Launcher = "helper"
	}
	d, err := s.Check(parent, r)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.n++
	id := fmt.Sprintf("01SPAWN%d", s.n)
	s.mu.Unlock()
	row := mail.Spawn{ID: id, Launcher: d.Launcher, Name: "parent/" + d.Name, Rights: d.Rights, MaxSeconds: d.MaxSeconds, MaxChildren: d.MaxChildren,
		MaxMessages: d.MaxMessages, WantResult: d.WantResult, KeepOnExit: d.KeepOnExit, ParentSession: "s:" + parent.Name()}
	s.book.mu.Lock()
	s.book.open[id] = row
	s.book.mu.Unlock()
	return id, s.Start(context.Background(), &row, parent, r)
}

func (s *stage) start(prompt string) string {
	s.t.Helper()
	id, err := s.begin(s.parent, Request{Prompt: prompt, Result: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// over waits for the end of a spawn.
func (s *stage) over(id string, within time.Duration) mail.SpawnEnd {
	s.t.Helper()
	var e mail.SpawnEnd
	doortest.Until(s.t, within, id+" has ended", func() (ok bool) { e, ok = s.book.end(id); return ok })
	return e
}

// result returns the output of an agent for a prompt.
func (s *stage) result(prompt string) string {
	s.t.Helper()
	e := s.over(s.start(prompt), 20*time.Second)
	if e.State != mail.Exited || e.ExitCode == nil || *e.ExitCode != 0 {
		s.t.Errorf("%q ended with %+v", prompt, e)
	}
	return e.Output
}

// eachMode runs a test without a sandbox and in each sandbox mode.
func eachMode(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Parallel()
	for _, mode := range []string{process.Off, process.Contain, process.Strict} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, newStage(t, mode))
		})
	}
}

func code(err error) string {
	var e *mail.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// marked returns the processes with a word in their environment.
func marked(word string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ")
		if slices.Contains(strings.Split(string(env), "\x00"), word) {
			pids = append(pids, must(strconv.Atoi(filepath.Base(dir))))
		}
	}
	return pids
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

func digest(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}
