package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream/process"
)

// TestMain lets the test binary play the servers that misbehave.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fake-server" {
		os.Exit(fakeServer(os.Args[2:]))
	}
	code := m.Run()
	if leak := leaked(); code == 0 && leak != "" {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// leaked says what is left when every test has closed its connections: a
// goroutine of this package, of net/http, or a descriptor.
func leaked() string {
	const patience = 12 * time.Second
	var left string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = leftovers(); left == "" {
			return ""
		}
	}
	return left
}

func leftovers() string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "leaked()") {
			continue
		}
		if strings.Contains(g, "internal/upstream.") || strings.Contains(g, "internal/upstream/process.") || strings.Contains(g, "net/http.") {
			return "goroutine left over:\n" + g
		}
	}
	if n := openPipesAndSockets(); n > baseline {
		return fmt.Sprintf("%d pipes and sockets left over", n-baseline)
	}
	return ""
}

// baseline is what the process had before the first test.
var baseline = openPipesAndSockets()

func openPipesAndSockets() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // not Linux: the goroutines tell most of it
	}
	n := 0
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

var sharedRunner = sync.OnceValues(func() (*process.Runner, error) {
	return process.NewRunner(process.Options{Max: -1, Stdin: 300 * time.Millisecond, Term: 300 * time.Millisecond})
})

func self(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// safeBuffer is a log that can be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *safeBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var discard = slog.New(slog.DiscardHandler)

func testDeps(t testing.TB) Deps {
	t.Helper()
	runner, err := sharedRunner()
	if err != nil {
		t.Fatal(err)
	}
	return Deps{
		Runner:     runner,
		Log:        slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelError})),
		ClientInfo: []byte(`{"name":"doorward","version":"1.0"}`),
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "%s: %s", l.t.Name(), p)
	return len(p), nil
}

// fake is a stdio server played by this binary in the given mode.
func fake(t testing.TB, mode string, change ...func(*Definition, *Deps)) *Server {
	t.Helper()
	def := Definition{Name: "fake", Kind: KindStdio, Path: self(t), Args: []string{"fake-server", mode}, Env: []string{"GORACE=" + os.Getenv("GORACE")}}
	deps := testDeps(t)
	for _, f := range change {
		f(&def, &deps)
	}
	s, err := New(def, deps)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const initParams = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}`

const modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`

func dialLegacy(t testing.TB, s *Server, on func(Event)) Conn {
	t.Helper()
	c, _, err := s.DialLegacy(testContext(t), []byte(initParams), on)
	if err != nil {
		t.Fatalf("DialLegacy: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// dialInTime is dialLegacy for a server with short limits, which a handshake may exceed on a
// busy machine.
func dialInTime(t testing.TB, s *Server) (c Conn) {
	t.Helper()
	eventually(t, "a handshake within its time", func() bool {
		var err error
		c, _, err = s.DialLegacy(testContext(t), []byte(initParams), nil)
		return err == nil
	})
	t.Cleanup(c.Close)
	return c
}

func dialModern(t testing.TB, s *Server, on func(Event)) Conn {
	t.Helper()
	c, _, err := s.DialModern(testContext(t), []byte(modernMeta), on)
	if err != nil {
		t.Fatalf("DialModern: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// testContext bounds a step of a test, so that a hang becomes a failure.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func tool(name string, extra ...string) *Request {
	return &Request{Method: "tools/call", Params: []byte(`{"name":"` + name + `","arguments":{` + strings.Join(extra, ",") + `}}`)}
}

func mustCall(t testing.TB, c Conn, r *Request, on func(Event)) Reply {
	t.Helper()
	reply, err := c.Call(testContext(t), r, on)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.Params, err)
	}
	return reply
}

func waitDone(t testing.TB, c Conn) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(40 * time.Second):
		t.Fatal("the connection is not over")
	}
}

// eventually polls for what another goroutine or process brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// recorder keeps events, from any goroutine.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) on(ev Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

func (r *recorder) all() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events...)
}

func (r *recorder) count(method string) (n int) {
	for _, ev := range r.all() {
		if ev.Method == method {
			n++
		}
	}
	return n
}

func text(t testing.TB, r Reply) string {
	t.Helper()
	if r.Error != nil {
		t.Fatalf("a JSON-RPC error: %v", r.Error)
	}
	s, ok := rawjson.GetString(r.Result, "text")
	if !ok {
		t.Fatalf("no text in %s", r.Result)
	}
	return s
}
