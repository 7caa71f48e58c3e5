package front

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The test binary is a client when clientEnv is set.
const clientEnv = "DOORWARD_FRONT_TEST_CLIENT"

func TestMain(m *testing.M) {
	if how := os.Getenv(clientEnv); how != "" {
		if err := playClient(how, os.Args[1], os.Args[2]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playClient opens a stream or makes a call that waits, and reads the response to its end.
func playClient(how, network, addr string) error {
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}}
	send := func(method, path, body, accept string, header ...string) (*http.Response, error) {
		req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		if _, port, err := net.SplitHostPort(addr); err == nil && network == "tcp" {
			req.Host = "127.0.0.1:" + port
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", accept)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		return c.Do(req)
	}
	const both, sse, json = "application/json, text/event-stream", "text/event-stream", "application/json"
	session := ""
	if strings.HasPrefix(how, "legacy") {
		resp, err := send("POST", "/mcp/s", hello, both)
		if err != nil {
			return err
		}
		resp.Body.Close()
		session = resp.Header.Get("Mcp-Session-Id")
	}
	fmt.Println("started")
	var resp *http.Response
	var err error
	const call = `{"jsonrpc":"2.0","id":1,"method":"x/wait","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	modern := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "x/wait"}
	switch how {
	case "legacy GET":
		resp, err = send("GET", "/mcp/s", "", sse, "Mcp-Session-Id", session)
	case "legacy call":
		resp, err = send("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/wait"}`, both, "Mcp-Session-Id", session)
	case "legacy call, JSON alone":
		resp, err = send("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/wait"}`, json, "Mcp-Session-Id", session)
	case "2024 stream":
		resp, err = send("GET", "/sse/s", "", sse)
	case "modern call":
		resp, err = send("POST", "/mcp/s", call, both, modern...)
	case "modern call, JSON alone":
		resp, err = send("POST", "/mcp/s", call, json, modern...)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// pulses counts the signs of life of each session.
type pulses struct {
	mu  sync.Mutex
	all map[string]int
}

func (p *pulses) seen(who *principal.Principal, session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[string]int)
	}
	p.all[who.Name()+" "+session]++
}

func (p *pulses) of(who *principal.Principal, session string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[who.Name()+" "+session]
}

// clinic is a house behind a real listener, with a client in a process of its own.
type clinic struct {
	*house
	pulses  pulses
	client  *exec.Cmd
	session string
	x       chan *Exchange
}

func admit(t *testing.T, network, how string) *clinic {
	t.Helper()
	c := &clinic{x: make(chan *Exchange, 1)}
	c.house = open(t, Options{Seen: c.pulses.seen, Unread: listen.Unread})
	c.watch = func(x *Exchange) {
		if x.Method == "x/wait" {
			c.x <- x
		}
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	c.serve = func(ctx context.Context, x *Exchange) Reply {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return Reply{Result: []byte(`{}`)}
	}
	addr := c.listenOn(network)
	c.client = exec.Command("/proc/self/exe", network, addr)
	c.client.Env = []string{clientEnv + "=" + how}
	out, err := c.client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.client.Process.Kill(); c.client.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("the client said %q", line)
	}
	return c
}

func (c *clinic) listenOn(network string) (addr string) {
	c.t.Helper()
	spec := listen.Spec{Network: network, Addr: "127.0.0.1:0"}
	if network == "unix" {
		dir, err := os.MkdirTemp("", "dw")
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { os.RemoveAll(dir) })
		spec.Addr = filepath.Join(dir, "s")
	}
	l, err := listen.Open(c.t.Context(), spec, listen.Credential{}, listen.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	srv := &http.Server{Handler: c.door, ConnContext: l.ConnContext}
	go srv.Serve(l.Net())
	c.t.Cleanup(func() { srv.Close(); l.Close() })
	return l.Addr()
}

// stop stops the client process, and returns when it is stopped.
func (c *clinic) stop() {
	c.t.Helper()
	c.client.Process.Signal(syscall.SIGSTOP)
	c.eventually("the client is stopped", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.client.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && info.Signo == int32(unix.SIGCHLD)
	})
}

// beats runs one keep-alive: on the stream of x, or on all sessions when x is nil.
func (c *clinic) beats(x *Exchange) {
	if x != nil {
		x.stream.tick()
		time.Sleep(5 * time.Millisecond)
		x.stream.tick()
		return
	}
	c.door.beat()
	time.Sleep(5 * time.Millisecond)
	c.door.hearAll()
}

// A client that reads its stream counts as alive. A stopped client does not, although its
// kernel accepts the keep-alives; after SIGCONT it does again.
func TestAStreamIsASignOfLifeWhileItsClientReadsIt(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"unix", "tcp"} {
		for _, how := range []string{"legacy GET", "legacy call", "2024 stream", "modern call"} {
			t.Run(network+", "+how, func(t *testing.T) {
				t.Parallel()
				c := admit(t, network, how)
				var x *Exchange
				if strings.HasSuffix(how, "call") {
					x = <-c.x
				}
				if how != "modern call" {
					c.session = c.door.onlyWhen(c, func(s *Session) bool { return x != nil || s.Listening() }).Digest
				}
				seen := func() int { return c.pulses.of(alice, c.session) }
				lives := func(why string) {
					t.Helper()
					before := seen()
					c.eventually(why, func() bool { c.beats(x); return seen() > before })
				}
				if seen() == 0 {
					t.Error("its requests gave no sign of life")
				}
				lives("it reads its stream")
				lives("it goes on reading")
				c.stop()
				c.beats(x) // notices what was read before the stop
				before := seen()
				for range 20 {
					c.beats(x)
				}
				if n := seen() - before; n != 0 {
					t.Errorf("a stopped client gave %d signs of life", n)
				}
				c.client.Process.Signal(syscall.SIGCONT)
				lives("it goes on after the stop")
				if other := c.pulses.of(alice, "") + c.pulses.of(bob, ""); how != "modern call" && other != 0 {
					t.Errorf("%d signs of life of other sessions", other)
				}
			})
		}
	}
}

// onlyWhen waits until there is a session that is ready, and returns it.
func (d *Door) onlyWhen(c *clinic, ready func(*Session) bool) (found *Session) {
	c.t.Helper()
	c.eventually("the session is ready", func() bool {
		d.Each(func(s *Session) bool { found = s; return false })
		return found != nil && ready(found)
	})
	return found
}

// A client that accepts no stream gives a sign of life with its request and none while it
// waits for the answer, because it is sent nothing that it could read.
func TestAWaitWithoutAStreamIsNoFurtherSignOfLife(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"legacy call, JSON alone", "modern call, JSON alone"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := admit(t, "unix", how)
			x := <-c.x
			if x.Session != nil {
				c.session = x.Session.Digest
			}
			before := c.pulses.of(alice, c.session)
			if before == 0 {
				t.Error("the request was no sign of life")
			}
			c.beats(nil)
			x.stream.mu.Lock()
			if x.stream.timer != nil {
				t.Error("a keep-alive is due for an answer that is no stream")
			}
			for range 3 {
				x.stream.beat()
			}
			x.stream.mu.Unlock()
			if n := c.pulses.of(alice, c.session); n != before {
				t.Errorf("%d signs of life of a client that only waits", n-before)
			}
		})
	}
}

// A stream whose unread bytes cannot be measured gives no sign of life; requests do.
func TestAStreamThatCannotBeMeasuredIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	for name, unread := range map[string]func(context.Context) func() (int, error){
		"not at all":       nil,
		"not this one":     func(context.Context) func() (int, error) { return nil },
		"the kernel fails": func(context.Context) func() (int, error) { return func() (int, error) { return 0, io.ErrClosedPipe } },
	} {
		t.Run(name, func(t *testing.T) {
			var p pulses
			h := open(t, Options{Seen: p.seen, Unread: unread})
			id := h.session("2025-11-25")
			resp, _ := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id)
			s := h.door.only(t)
			h.eventually("the stream is open", s.Listening)
			before := p.of(alice, s.Digest)
			if resp.StatusCode != 200 || before != 2 {
				t.Fatalf("%d, %d signs of life of two requests", resp.StatusCode, before)
			}
			for range 5 {
				h.door.beat()
				time.Sleep(time.Millisecond)
				h.door.hearAll()
			}
			if n := p.of(alice, s.Digest); n != before {
				t.Errorf("%d signs of life", n-before)
			}
		})
	}
}

// A request gives a sign of life for its own session only. One that is not authenticated,
// comes from a foreign origin, or names the session of another principal or none gives none.
func TestARequestKeepsItsOwnSessionAliveAlone(t *testing.T) {
	t.Parallel()
	var p pulses
	h := open(t, Options{Seen: p.seen})
	id := h.session("2025-11-25")
	digest := h.door.only(t).Digest
	call := `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`
	for _, header := range [][]string{
		{"Mcp-Session-Id", id, "Who", "bob"}, {"Mcp-Session-Id", id, "Who", "nobody"}, {"Mcp-Session-Id", unknownID}, {"Mcp-Session-Id", id, "Origin", "http://evil.example"},
	} {
		h.do("POST", "/mcp/s", call, header...)
		h.do("GET", "/mcp/s", "", header...)
	}
	if n := p.of(alice, digest) + p.of(bob, digest); n != 1 {
		t.Errorf("%d signs of life of one initialize", n)
	}
	h.do("POST", "/mcp/s", call, "Mcp-Session-Id", id)
	h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/x"}`, "Mcp-Session-Id", id)
	if n := p.of(alice, digest); n != 3 {
		t.Errorf("%d signs of life of initialize, a request and a notification", n)
	}
}

// A namespace in a header reaches the Handler in both eras. A value that is not a valid
// label and a header that comes twice are ignored.
func TestTheNamespaceIsALabelOrNothing(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	var got []string
	h.watch = func(x *Exchange) { got = append(got, x.Namespace) }
	id := h.session("2025-11-25", "Doorward-Namespace", "demo-0011aabb")
	legacy := func(header ...string) {
		h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{}}`, append(header, "Mcp-Session-Id", id)...)
	}
	modern := func(header ...string) {
		h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "x/y")...)
	}
	want := []string{"demo-0011aabb"}
	for _, tc := range []struct{ header, want string }{
		{"demo-0011aabb", "demo-0011aabb"}, {strings.Repeat("a", 63), strings.Repeat("a", 63)}, {"0.x_y-z", "0.x_y-z"},
		{strings.Repeat("a", 64), ""}, {"-demo", ""}, {".demo", ""}, {"Demo", ""}, {"dé", ""}, {"a b", ""}, {"a/b", ""}, {"", ""},
	} {
		legacy("Doorward-Namespace", tc.header)
		modern("Doorward-Namespace", tc.header)
		want = append(want, tc.want, tc.want)
	}
	legacy("Doorward-Namespace", "one", "Doorward-Namespace", "two")
	legacy()
	modern()
	want = append(want, "", "", "")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
