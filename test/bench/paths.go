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

// The compared paths, by their names in the report.
const (
	pathDirect  = "direct"         // the generator and the HTTP server without a proxy
	pathReverse = "reverse proxy"  // httputil.ReverseProxy in front of that server
	pathRelay   = "bare relay"     // HTTP to HTTP without any check: the upper bound
	pathHTTP    = "doorward http"  // Doorward in front of that server
	pathStdio   = "doorward stdio" // Doorward in front of the same tools on stdio, one server for each session
	pathShared  = "doorward stdio shared"
	pathBridge  = "bare bridge" // HTTP to stdio without any check: the upper bound
	pathOne     = "bare bridge shared"

	before = "before: " // prefix of the paths of the older daemon
)

// path is one way to the tools and the processes that it consists of.
type path struct {
	name     string
	entry    endpoint
	proxy    *process // nil for direct
	upstream *process // nil when the upstreams are children of the proxy
	shared   bool     // one child serves all sessions
}

// tools are the programs that the paths run.
type tools struct {
	self     string // this program, for the hidden modes
	fixture  string
	light    bool // the fixture without the SDK
	idler    string
	doorward string // empty: not measured
	dir      string // for configuration and state, removed at the end
}

// settleTime is the age from which Doorward caches a program's digest. A younger file is read again
// at each start, because it may change without a visible change of its metadata. Real servers are
// rarely used within a second of being built.
const settleTime = 2500 * time.Millisecond

// buildTools compiles the servers into dir. It needs the go command, which `go run` implies.
func buildTools(dir, doorward string) (*tools, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	t := &tools{self: self, fixture: filepath.Join(dir, "fixture"), idler: filepath.Join(dir, "idler"), dir: dir}
	here, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/doorward/doorward/test/bench").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the sources: %w", err)
	}
	for out, source := range map[string]string{t.fixture: "../sdk/bench", t.idler: "idler"} {
		cmd := exec.Command("go", "build", "-C", filepath.Join(strings.TrimSpace(string(here)), source), "-o", out, ".")
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

// announced returns the address in the first line of the fixture and of the hidden modes.
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

// named renames a started path.
func named(name string) func(*path, error) (*path, error) {
	return func(p *path, err error) (*path, error) {
		if err != nil {
			return nil, err
		}
		p.name = name
		return p, nil
	}
}

// startDoorwardStdio runs Doorward in front of a stdio server: one for all sessions, one for each
// session, or, for the idle sessions, the default.
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

// usual is the default sandbox of a server.
const usual = "contain"

// Caps that no measurement reaches, within what the configuration admits.
const (
	plenty     = 4096
	plentyRate = 1_000_000
)

// startDoorward runs the daemon with its defaults: all checks, the policy and the audit log are on.
// Only caps are raised, and the listener gets a free port. more are further listeners. The
// configuration is written as JSON, which is valid YAML.
func (t *tools) startDoorward(server map[string]any, more ...any) (*process, error) {
	p, _, err := t.startConfigured("off", server, more...)
	return p, err
}

// startConfigured is like startDoorward, with a value for listen.unix. It also returns the daemon's
// directory, which holds its doorward.yaml, state and run.
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

// doorwardEnv returns the environment without the variables that configure the daemon.
func doorwardEnv(home string) []string {
	env := []string{"HOME=" + home}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "DOORWARD_") && !strings.HasPrefix(e, "HOME=") {
			env = append(env, e)
		}
	}
	return env
}

// freeAddr returns a loopback address with a port that is free at the moment.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// cpu holds processor times spent so far: the proxy's, and that of the servers behind it.
type cpu struct{ proxy, upstream time.Duration }

// cpu reads the processor times of the path's processes. It fails when a proxy that starts its own
// servers has fewer of them than the open sessions need, because the figure would be too small.
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
