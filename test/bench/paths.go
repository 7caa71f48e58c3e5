//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The paths that are compared, by the names in the report.
const (
	pathDirect  = "direct"         // the generator at the HTTP server itself
	pathReverse = "reverse proxy"  // httputil.ReverseProxy in front of that server
	pathRelay   = "bare relay"     // HTTP to HTTP without a single check: the ceiling
	pathHTTP    = "doorward http"  // Doorward in front of that server
	pathStdio   = "doorward stdio" // Doorward in front of the same tools on stdio, a server a session
	pathShared  = "doorward stdio shared"
	pathBridge  = "bare bridge" // HTTP to stdio without a single check: the ceiling
	pathOne     = "bare bridge shared"

	before = "before: " // precedes the paths of the older daemon
)

// path is one way to the tools, and the processes that make it up.
type path struct {
	name     string
	entry    endpoint
	proxy    *process // nil for direct
	upstream *process // nil when the upstreams are the proxy's own children
	shared   bool     // one child serves all sessions
}

// tools are the programs that the paths are built from.
type tools struct {
	self     string // this program, for the hidden modes
	fixture  string
	light    bool // the fixture without the SDK
	idler    string
	doorward string // empty: not measured
	dir      string // for configuration and state, removed at the end
}

// settleTime is the age from which a program's digest is remembered: a younger file may change and still
// look the same, so it is read again at each start. A server is rarely built within a second
// of its first call.
const settleTime = 2500 * time.Millisecond

// buildTools compiles the servers into dir. The Go tool is at hand wherever `go run` started this.
func buildTools(dir, doorward string) (*tools, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	t := &tools{self: self, fixture: filepath.Join(dir, "fixture"), idler: filepath.Join(dir, "idler"), dir: dir}
	const here = "github.com/doorward/doorward/test/bench/"
	for _, out := range []string{t.fixture, t.idler} {
		cmd := exec.Command("go", "build", "-o", out, here+filepath.Base(out))
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s: %w: %s", out, err, text)
		}
	}
	time.Sleep(settleTime)
	if _, err := os.Stat(doorward); err == nil {
		if t.doorward, err = filepath.Abs(doorward); err != nil {
			return nil, fmt.Errorf("finding %s: %w", doorward, err)
		}
	}
	return t, nil
}

// announced takes the address from the first line of the fixture and of the hidden modes.
func announced(line string) (string, bool) { return strings.CutPrefix(line, "listening ") }

func (t *tools) startFixture() (*process, error) {
	args := append([]string{"-http", "127.0.0.1:0"}, t.fixtureArgs()...)
	return start(1, announced, t.fixture, os.Environ(), args...)
}

func (t *tools) fixtureArgs() []string {
	if t.light {
		return []string{"-light"}
	}
	return []string{}
}

func (t *tools) startReverse(upstream *process) (*path, error) {
	return t.startProxy(pathReverse, modeReverseProxy, upstream)
}

// startProxy starts a hidden mode in front of an HTTP server.
func (t *tools) startProxy(name, mode string, upstream *process) (*path, error) {
	p, err := start(1, announced, t.self, os.Environ(), mode, "http://"+upstream.addr)
	if err != nil {
		return nil, err
	}
	return &path{name: name, entry: endpoint{p.addr, "/mcp"}, proxy: p, upstream: upstream}, nil
}

func (t *tools) startBridge(name, mode string) (*path, error) {
	args := append([]string{mode, t.fixture}, t.fixtureArgs()...)
	p, err := start(1, announced, t.self, os.Environ(), args...)
	if err != nil {
		return nil, err
	}
	return &path{name: name, entry: endpoint{p.addr, "/mcp"}, proxy: p, shared: mode == modeBridgeShared}, nil
}

func (t *tools) startDoorwardHTTP(upstream *process) (*path, error) {
	p, err := t.startDoorward(map[string]any{
		"url": "http://" + upstream.addr + "/mcp",
		"doorward": map[string]any{
			"allow_private": true, "max_concurrency": plenty,
		},
	})
	if err != nil {
		return nil, err
	}
	return &path{name: pathHTTP, entry: endpoint{p.addr, "/mcp/bench"}, proxy: p, upstream: upstream}, nil
}

// named gives a path that was started another name.
func named(name string) func(*path, error) (*path, error) {
	return func(p *path, err error) (*path, error) {
		if err != nil {
			return nil, err
		}
		p.name = name
		return p, nil
	}
}

// startDoorwardStdio runs Doorward in front of a stdio server: a server a session, one for all, or, for idle
// sessions, what is usual.
func (t *tools) startDoorwardStdio(name, command string, args []string, sandbox string) (*path, error) {
	own := map[string]any{"sandbox": sandbox, "max_instances": plenty, "max_concurrency": plenty}
	switch {
	case name == pathShared:
		own["instances"] = "shared"
	case command != t.idler:
		own["instances"] = "session"
	}
	p, err := t.startDoorward(map[string]any{"command": command, "args": args, "doorward": own})
	if err != nil {
		return nil, err
	}
	return &path{name: name, entry: endpoint{p.addr, "/mcp/bench"}, proxy: p, shared: own["instances"] != "session"}, nil
}

// usual is the sandbox that a server has when its configuration says nothing.
const usual = "contain"

// Caps that no measurement reaches, within what the configuration admits.
const (
	plenty     = 4096
	plentyRate = 1_000_000
)

// startDoorward runs the daemon with its defaults: every check, the policy and the record are on. Only
// caps are raised, and the listener's port is one that is free. The configuration is JSON, which is YAML.
// More listeners can be given.
func (t *tools) startDoorward(server map[string]any, more ...any) (*process, error) {
	p, _, err := t.startConfigured("off", server, more...)
	return p, err
}

// startConfigured is startDoorward with a value of listen.unix. It returns the daemon's home too, which holds
// its doorward.yaml, state and run.
func (t *tools) startConfigured(unix string, server map[string]any, more ...any) (*process, string, error) {
	dir, err := os.MkdirTemp(t.dir, "doorward-")
	if err != nil {
		return nil, "", fmt.Errorf("preparing the daemon: %w", err)
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, "", err
	}
	config, err := json.MarshalIndent(map[string]any{
		"listen":     map[string]any{"unix": unix, "http": append([]any{map[string]any{"addr": addr}}, more...)},
		"mcpServers": map[string]any{"bench": server},
		"limits": map[string]any{
			"sessions": plenty, "sessions_per_principal": plenty, "children": plenty,
			"calls_per_second": plentyRate, "calls_per_principal": plenty,
		},
	}, "", "  ")
	if err != nil {
		return nil, "", fmt.Errorf("writing the configuration: %w", err)
	}
	file := filepath.Join(dir, "doorward.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, "", fmt.Errorf("writing the configuration: %w", err)
	}
	ready := func(line string) (string, bool) { return addr, line == "ready" }
	p, err := start(2, ready, t.doorward, doorwardEnv(dir), "serve", "--config", file,
		"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run"))
	return p, dir, err
}

// doorwardEnv is the caller's environment without what would configure the daemon.
func doorwardEnv(home string) []string {
	env := []string{"HOME=" + home}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "DOORWARD_") && !strings.HasPrefix(e, "HOME=") {
			env = append(env, e)
		}
	}
	return env
}

// freeAddr finds a loopback port that nobody serves at the moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// cpu is processor time spent so far, the proxy's own and that of the servers behind it.
type cpu struct{ proxy, upstream time.Duration }

// cpu reads the clocks of the path's processes. Behind a proxy that starts its servers itself there must be
// as many as the open sessions need: a figure that misses some would flatter it.
func (p *path) cpu(sessions int) (cpu, error) {
	var c cpu
	var err error
	if p.proxy != nil {
		if c.proxy, err = cpuTime(p.proxy.pid()); err != nil {
			return c, err
		}
	}
	if p.upstream != nil {
		c.upstream, err = cpuTime(p.upstream.pid())
		return c, err
	}
	below, err := descendants(p.proxy.pid())
	if err != nil {
		return c, err
	}
	if len(below) == 0 || len(below) < sessions && !p.shared {
		return c, fmt.Errorf("%s: %d processes below the proxy, %d sessions", p.name, len(below), sessions)
	}
	for _, pid := range below {
		t, err := cpuTime(pid)
		if err != nil {
			return c, err
		}
		c.upstream += t
	}
	return c, nil
}
