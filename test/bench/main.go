//go:build linux

// Bench measures the cost of Doorward and of the programs it is compared with, in one run on one
// machine.
//
// Absolute times depend mainly on the machine, so most judged figures are ratios of two paths
// measured in turns in the same run: Doorward in front of a tool server, and the standard library's
// httputil.ReverseProxy in front of the same server over HTTP. The generator verifies every answer
// and uses arguments that never repeat. Its own processor time is not counted. Doorward runs as
// installed: identity, policy, limits and the audit log are on, only caps are raised.
//
//	go run ./test/bench                      about twelve minutes, Markdown on stdout
//	go run ./test/bench -quick               about two minutes, for a first look; too short to judge by
//	go run ./test/bench -only load,idle      some of the sections load, big, open, sandbox, identity, idle, policy,
//	                                         mail, instructions, beside
//
// A missed target is printed as MISS and is not a failure. The exit status is 1 when something
// could not be measured, and 2 for wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	// Children end with the thread that started them (see start), so this thread must last as long
	// as the process.
	runtime.LockOSThread()
	if mode, err := runMode(os.Args[1:]); mode {
		exitOn(err)
	}
	r, err := parseFlags()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
		os.Exit(2)
	}
	exitOn(r.all())
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is one benchmark: its parameters, and the failures so far.
type run struct {
	doorward  string
	before    string // an older daemon to compare with; empty: none
	jsonFile  string
	only      []string
	names     []string // of the paths to measure; empty: all
	levels    []int    // numbers of concurrent sessions
	rounds    int
	window    time.Duration
	opensEach int
	idleHTTP  int
	idleStdio int
	modern    bool
	light     bool
	short     bool // quick: fewer stored messages
	started   time.Time
	broken    map[string]bool // paths that have failed and are left out since
	failures  []string
}

var sections = []string{"load", "big", "open", "sandbox", "identity", "idle", "policy", "mail", "instructions", "beside"}

func parseFlags() (*run, error) {
	r := &run{started: time.Now(), broken: make(map[string]bool)}
	quick := flag.Bool("quick", false, "about two minutes: fewer and shorter rounds, 200 idle sessions, 10,000 stored messages")
	only := flag.String("only", strings.Join(sections, ","), "comma-separated `sections` to run")
	names := flag.String("paths", "", "comma-separated `names` of the paths to measure beside the reverse proxy, as the report writes them (default all)")
	levels := flag.String("sessions", "1,8,64", "comma-separated `numbers` of concurrent sessions")
	flag.StringVar(&r.doorward, "doorward", "bin/doorward", "the daemon's binary; without it the other paths are measured alone")
	flag.StringVar(&r.before, "before", "", "an older daemon's `binary`, measured in the same rounds (sections load, big and open)")
	flag.StringVar(&r.jsonFile, "json", "", "write every round's figures to this `file`")
	flag.IntVar(&r.rounds, "rounds", 0, "rounds of each comparison (default 5, quick 2)")
	flag.DurationVar(&r.window, "window", 0, "how long a path is driven in a round (default 2.5s, quick 500ms)")
	flag.IntVar(&r.idleHTTP, "idle", 0, "idle sessions to weigh, with an HTTP upstream (default 1000, quick 200)")
	flag.IntVar(&r.idleStdio, "idle-stdio", 0, "idle sessions to weigh, with a stdio upstream (default 1000, quick 100)")
	flag.BoolVar(&r.modern, "modern", false, "speak "+modernVersion+" instead of "+legacyVersion+" (sections load and big)")
	flag.BoolVar(&r.light, "light", false, "put everything in front of a server written by hand, which hides less of a proxy's cost than the SDK's")
	flag.Parse()
	if r.light && r.modern {
		return nil, errors.New("-light and -modern: the light server speaks " + legacyVersion + " alone")
	}
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	r.short = *quick
	r.defaults(*quick)
	if *names != "" {
		r.names = append(strings.Split(*names, ","), pathDirect, pathReverse)
	}
	return r, r.lists(*only, *levels)
}

// defaults sets the parameters without a flag.
func (r *run) defaults(quick bool) {
	set := func(n *int, full, short int) {
		if *n <= 0 {
			*n = full
			if quick {
				*n = short
			}
		}
	}
	set(&r.rounds, 5, 2)
	set(&r.opensEach, 30, 10)
	set(&r.idleHTTP, 1000, 200)
	set(&r.idleStdio, 1000, 100)
	if r.window <= 0 {
		r.window = 2500 * time.Millisecond
		if quick {
			r.window = 500 * time.Millisecond
		}
	}
}

// lists parses the flags that hold several values.
func (r *run) lists(only, levels string) error {
	for _, s := range strings.Split(only, ",") {
		if !slices.Contains(sections, s) {
			return fmt.Errorf("-only: %q is none of %s", s, strings.Join(sections, ", "))
		}
		if r.modern && (s == "idle" || s == "open" || s == "mail" || s == "instructions") {
			continue // this version has no sessions
		}
		r.only = append(r.only, s)
	}
	for _, l := range strings.Split(levels, ",") {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 {
			return fmt.Errorf("-sessions: %q is no number of sessions", l)
		}
		r.levels = append(r.levels, n)
	}
	return nil
}

func (r *run) wants(section string) bool { return slices.Contains(r.only, section) }

func (r *run) measures(name string) bool { return len(r.names) == 0 || slices.Contains(r.names, name) }

// progress reports the progress of the run on stderr.
func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}

// failed records an error of a path, which is left out from then on, and reports whether there was
// one.
func (r *run) failed(p *path, err error) bool {
	if err == nil {
		return false
	}
	r.broken[p.name] = true
	r.failures = append(r.failures, fmt.Sprintf("%s: %v", p.name, err))
	r.progress("%s FAILED: %v", p.name, err)
	if p.proxy != nil {
		r.progress("%s: %s", p.name, p.proxy.tail)
	}
	return true
}

// all runs the sections and reports. It fails when something could not be measured.
func (r *run) all() error {
	dir, err := os.MkdirTemp("", "doorward-bench-")
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	defer os.RemoveAll(dir)
	removeOnSignal(dir)
	t, err := buildTools(dir, r.doorward)
	if err != nil {
		return err
	}
	t.light = r.light
	if t.doorward == "" {
		r.progress("%s does not exist: measuring the other paths alone", r.doorward)
	}
	results := &results{Machine: machineFacts(), Modern: r.modern, Doorward: t.doorward != ""}
	r.loaded(t, results)
	if r.wants("sandbox") && t.doorward != "" && !r.modern {
		results.Sandboxes = r.shut(t)
	}
	if r.wants("identity") && t.doorward != "" && !r.modern {
		results.Identity, err = r.identity(t)
		r.failed(&path{name: "identity"}, err)
	}
	if r.wants("idle") {
		r.weigh(t, results)
	}
	if r.wants("policy") {
		results.Decisions, err = r.decide()
		r.failed(&path{name: "policy"}, err)
	}
	if r.wants("mail") && !r.modern {
		results.Mail = r.messages(t)
	}
	if r.wants("instructions") && t.doorward != "" && !r.modern {
		results.Instructions = r.instruct(t)
	}
	if r.wants("beside") && t.doorward != "" && !r.modern {
		results.Beside, err = r.beside(t, besideSessions)
		r.failed(&path{name: "beside"}, err)
	}
	results.Took = time.Since(r.started)
	results.Failures = r.failures
	results.print(os.Stdout)
	if r.jsonFile != "" {
		if err := results.save(r.jsonFile); err != nil {
			return err
		}
	}
	if len(r.failures) > 0 {
		return fmt.Errorf("not everything was measured: %d failures, listed in the report", len(r.failures))
	}
	return nil
}

// removeOnSignal removes the files when the run is interrupted. The kernel ends the programs.
func removeOnSignal(dir string) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-broken
		os.RemoveAll(dir)
		os.Exit(1)
	}()
}

// loaded runs the sections that share one set of running paths.
func (r *run) loaded(t *tools, results *results) {
	if !r.wants("load") && !r.wants("big") && !r.wants("open") {
		return
	}
	paths := r.startAll(t)
	defer func() {
		for _, p := range slices.Backward(paths) {
			p.stop()
		}
	}()
	if r.wants("open") {
		results.Openings = r.opens(paths, r.opensEach)
	}
	if r.wants("load") {
		for _, n := range r.levels {
			results.Load = append(results.Load, r.compare(paths, n, "echo", r.rounds, r.window)...)
		}
	}
	if r.wants("big") {
		// A result takes tens of milliseconds: shorter windows would hold too few of them.
		results.Big = r.compare(paths, 1, "big", r.rounds, max(r.window/2, 800*time.Millisecond))
	}
}

// startAll starts every path. A path that does not start is recorded as a failure.
func (r *run) startAll(t *tools) []*path {
	var paths []*path
	add := func(name string, start func() (*path, error)) *path {
		if !r.measures(name) {
			return nil
		}
		p, err := start()
		if r.failed(&path{name: name}, err) {
			return nil
		}
		paths = append(paths, p)
		return p
	}
	direct := add(pathDirect, func() (*path, error) {
		p, err := t.startFixture()
		if err != nil {
			return nil, err
		}
		return &path{name: pathDirect, entry: endpoint{p.addr, "/mcp"}, upstream: p}, nil
	})
	if direct == nil {
		return nil
	}
	add(pathReverse, func() (*path, error) { return t.startReverse(direct.upstream) })
	add(pathRelay, func() (*path, error) { return t.startProxy(pathRelay, modeRelay, direct.upstream) })
	if t.doorward != "" {
		add(pathHTTP, func() (*path, error) { return t.startDoorwardHTTP(direct.upstream) })
		add(pathStdio, func() (*path, error) { return t.startDoorwardStdio(pathStdio, t.fixture, t.fixtureArgs(), usual) })
		add(pathShared, func() (*path, error) { return t.startDoorwardStdio(pathShared, t.fixture, t.fixtureArgs(), usual) })
	}
	if r.before != "" {
		old := *t
		old.doorward = r.before
		add(before+pathHTTP, func() (*path, error) { return named(before + pathHTTP)(old.startDoorwardHTTP(direct.upstream)) })
		add(before+pathShared, func() (*path, error) {
			return named(before + pathShared)(old.startDoorwardStdio(pathShared, t.fixture, t.fixtureArgs(), usual))
		})
	}
	if !r.modern { // the bridge depends on sessions, which the newer version does not have
		add(pathBridge, func() (*path, error) { return t.startBridge(pathBridge, modeBridge) })
		add(pathOne, func() (*path, error) { return t.startBridge(pathOne, modeBridgeShared) })
	}
	return paths
}

// weigh runs the section idle, with new processes for each path.
func (r *run) weigh(t *tools, results *results) {
	behind := func(start func(*process) (*path, error)) func() (*path, error) {
		return func() (*path, error) {
			fixture, err := t.startFixture()
			if err != nil {
				return nil, err
			}
			p, err := start(fixture)
			if err != nil {
				fixture.stop()
			}
			return p, err
		}
	}
	weigh := func(name string, n int, start func() (*path, error)) {
		if !r.measures(name) {
			return
		}
		cost, err := r.idle(name, n, start)
		if !r.failed(&path{name: name}, err) {
			results.Idle = append(results.Idle, cost)
		}
	}
	weigh(pathReverse, r.idleHTTP, behind(t.startReverse))
	if t.doorward == "" {
		return
	}
	weigh(pathHTTP, r.idleHTTP, behind(t.startDoorwardHTTP))
	weigh(pathStdio, r.idleStdio, func() (*path, error) { return t.startDoorwardStdio(pathStdio, t.idler, []string{}, usual) })
}
