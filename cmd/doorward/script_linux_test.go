package main

import (
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// The scripts of testdata drive the real program: `doorward` in a script is
// this test binary running main, with its own directories under $WORK, and so
// is every supervisor that a daemon starts. `fakemcp` is the MCP server behind
// it, well-behaved or not (fakemcp_linux_test.go), and `stranger` a process that
// connects to the socket in an unusual way (stranger_linux_test.go). Each script begins with
// a comment on the property that it shows.
//
// Verbs beside those of testscript:
//
//	daemon [NAME] [VAR=V…] [FLAG…]   start `doorward serve`, wait for `ready`; sets URL, HOST, PORT, URL2…, SOCK, PID; stderr in NAME.log
//	signal NAME SIG [STATUS LIMIT]   send a signal, 0 for none; with STATUS wait for that exit status
//	exits [-within D] N [VAR=V…] CMD run a command that must end with status N
//	human [-within D] N [VAR=V…] CMD the same from a login that began before the test's agents; see human_linux_test.go
//	http METHOD TARGET [FLAG…]       one request as it is written; see http_linux_test.go
//	session VAR PATH [FLAG…]         open a legacy session and set VAR to its id
//	forged TOKEN METHOD TARGET …     a request for each forgery of a token; see forged_linux_test.go
//	mcp NAME start|send|expect|end|over   a conversation in lines; see talk_linux_test.go
//	waitfor LIMIT REGEXP FILE|CMD…|http …   until the file, the output or the answer matches
//	children N LIMIT                 until exactly N servers of this script's daemons run
//	[!] bound PORT                   a process listens on the port
//	freeport VAR…                    ports that are free, outside the kernel's own range
//	flood N AT-ONCE PATH TOOL …      many calls; prints how many got which status
//	capture VAR REGEXP               the first group in the last output
//	filelimit NAME BYTES|none        no file of the daemon may grow beyond
//	build FILE PACKAGE               go build
//	record VAR FILE                  the same as web, and they write down every byte; see recordweb_linux_test.go
//	web VAR                          MCP servers over HTTP; see fakeweb_linux_test.go
//	provider NAME …, login …          an MCP server that wants OAuth, and its user; see provider_linux_test.go
//	printed, shown FILE, oddfiles    nothing hidden is printed; see printed_linux_test.go
//	wide                             no command writes beyond 80 columns; see width_linux_test.go
//	echoes SECRET FILE, echoed SECRET   servers that repeat what they get; see printed_linux_test.go
//	issuer NAME …, mint VAR NAME …   an authorization server and its tokens; see issuer_linux_test.go

func TestMain(m *testing.M) {
	// Scripts wait for processes more than they work.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	testscript.Main(tidy{m}, map[string]func(){"doorward": main, "fakemcp": fakeMCP, "stranger": stranger, "adrift": adrift, "pty": ptyMain, "resident": residentMain, "reaper": reaperMain})
}

// tidy removes what the tests share when all are over.
type tidy struct{ m *testing.M }

func (r tidy) Run() int {
	status := r.m.Run()
	if dir, ok := programsDir.Load().(string); ok {
		_ = os.RemoveAll(dir)
	}
	return status
}

func TestScripts(t *testing.T) {
	if r := theResident(); r.err != nil {
		t.Fatal(r.err)
	}
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Setup:               setup,
		Condition:           condition,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon, "signal": cmdSignal, "exits": cmdExits, "http": cmdHTTP, "session": cmdSession,
			"tool": cmdTool, "field": cmdField,
			"mcp": cmdMCP, "waitfor": cmdWaitfor, "children": cmdChildren, "bound": cmdBound, "freeport": cmdFreeport,
			"capture": cmdCapture, "build": cmdBuild, "web": cmdWeb, "record": cmdRecord,
			"issuer": cmdIssuer, "postgres": cmdPostgres, "mint": cmdMint, "provider": cmdProvider, "login": cmdLogin,
			"flood": cmdFlood, "filelimit": cmdFilelimit, "human": cmdHuman, "forged": cmdForged,
			"printed": cmdPrinted, "wide": cmdWide, "shown": cmdShown, "oddfiles": cmdOddFiles, "echoes": cmdEcho, "echoed": cmdEchoed,
		},
	})
}

// condition knows [ipv6]: this host has the address ::1, and [root].
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Geteuid() == 0, nil
	case "ipv6":
	default:
		return false, fmt.Errorf("unknown condition %q", name)
	}
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return false, nil // whatever the reason, it cannot be bound
	}
	return true, l.Close()
}

// meta is what every request of 2026-07-28 carries; `$META` in a body.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// stage is what one script has running.
type stage struct {
	t         testing.TB
	daemons   map[string]*daemonProc
	talks     map[string]*talk
	issuers   map[string]*doortest.Issuer
	providers map[string]*doortest.Provider
	postgres  *doortest.Server
}

type stageKey struct{}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

func setup(e *testscript.Env) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	home := filepath.Join(e.WorkDir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	t := e.T().(testing.TB)
	e.Defer(func() { leaveNothing(t, e.WorkDir) })
	e.Values[stageKey{}] = &stage{t: t, daemons: make(map[string]*daemonProc), talks: make(map[string]*talk), issuers: make(map[string]*doortest.Issuer),
		providers: make(map[string]*doortest.Provider)}
	e.Vars = append(e.Vars, "ROOT="+root, "HOME="+home, "USER=tester", "LANG=C.UTF-8", "META="+meta,
		"STATE="+filepath.Join(e.WorkDir, "state"),
		"DOORWARD_CONFIG="+filepath.Join(e.WorkDir, "doorward.yaml"),
		"DOORWARD_STATE_DIR="+filepath.Join(e.WorkDir, "state"),
		"DOORWARD_RUNTIME_DIR="+filepath.Join(e.WorkDir, "run"),
		// Else each process of a binary built with -race sleeps a second at its end.
		"GORACE=atexit_sleep_ms=0")
	return filepath.WalkDir(e.WorkDir, private)
}

// private takes away what a lax umask gave: doorward refuses a configuration
// that others can write.
func private(path string, d fs.DirEntry, err error) error {
	if err != nil || d.IsDir() {
		return err
	}
	return os.Chmod(path, 0o600)
}

// environment is what a process of the script sees, and nothing of the
// tester's own. more are VAR=VALUE pairs.
func environment(ts *testscript.TestScript, more []string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "WORK", "GORACE", "GOCOVERDIR",
		"DOORWARD_CONFIG", "DOORWARD_STATE_DIR", "DOORWARD_RUNTIME_DIR", "DOORWARD_TOKEN"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return append(env, more...)
}

var pair = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)

// cutPairs splits VAR=VALUE words off the front.
func cutPairs(args []string) (pairs, rest []string) {
	for i, a := range args {
		if !pair.MatchString(a) {
			return args[:i], args[i:]
		}
	}
	return args, nil
}

var variable = regexp.MustCompile(`\$[A-Z][A-Z0-9_]*`)

// fill replaces $NAME in a body, which stands in single quotes in its script.
func fill(ts *testscript.TestScript, text string) string {
	return variable.ReplaceAllStringFunc(text, func(v string) string { return ts.Getenv(v[1:]) })
}

// limit reads a duration and adds late. A script has the time that the documents promise, and
// late is for a machine under load.
func limit(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d + late()
}

// late is how much later than promised something may happen.
func late() time.Duration { return slack + overload.Late() }

func need(ts *testscript.TestScript, neg bool, ok bool, usage string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

func pattern(ts *testscript.TestScript, text string) *regexp.Regexp {
	re, err := regexp.Compile(`(?m)` + text)
	ts.Check(err)
	return re
}

func poll(within time.Duration, done func() bool) bool { return doortest.Becomes(within, done) }

func tail(text string, n int) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
