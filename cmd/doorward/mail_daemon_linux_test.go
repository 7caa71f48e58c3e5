package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// mailSoon bounds what a working daemon answers in milliseconds. It is not a
// promise of the product, so it has room for a machine under load.
const mailSoon = 90 * time.Second

// mailDaemon is the real program with messaging. It can be killed and started
// again on what it left on its disk.
type mailDaemon struct {
	t    testing.TB
	dir  string
	env  []string
	name string // of its node

	mu     sync.Mutex
	proc   *daemonProc
	killed bool // proc was, by kill
	url    string
	socket string
	said   strings.Builder // stderr of the runs before
}

// mailConfig is a configuration for tests that send more than an agent may by
// default. agent are more lines of that section.
func mailConfig(node, postgres, agent string) string {
	return fmt.Sprintf(`listen: {http: [{addr: "127.0.0.1:0"}]}
limits: {sessions: 5000, sessions_per_principal: 5000, calls_per_second: 100000, calls_per_principal: 5000}
store: {node: %s, postgres: %q}
agent:
  sends_per_minute: 100000
%s`, node, postgres, agent)
}

// roomy are the limits of a test that fills mailboxes.
const roomy = "  mailbox_messages: 100000\n  sender_messages: 100000\n  mailbox_bytes: 1000000000\n"

// mailEngines are the stores that a test runs on.
var mailEngines = map[string]func(testing.TB) (postgres string){
	"SQLite":     func(testing.TB) string { return "" },
	"PostgreSQL": doortest.Postgres,
}

// startMail starts a daemon; files are pairs of a name and a text, written beside its
// configuration.
func startMail(t testing.TB, name, config string, files ...string) *mailDaemon {
	t.Helper()
	d := newMailDir(t, name, config, files...)
	d.start()
	return d
}

// newMailDir is startMail for a daemon that is not started.
func newMailDir(t testing.TB, name, config string, files ...string) *mailDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "dwmail") // t.TempDir spends a socket's length on the test's name
	if err != nil {
		t.Fatal(err)
	}
	d := &mailDaemon{t: t, dir: dir, name: name}
	t.Cleanup(func() {
		d.stop()
		if t.Failed() {
			t.Logf("[stderr of %s]\n%s", name, tail(d.stderr(), 60))
		}
		leaveNothing(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d.env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0",
		"DOORWARD_STATE_DIR=" + filepath.Join(dir, "s"), "DOORWARD_RUNTIME_DIR=" + filepath.Join(dir, "r"),
		"DOORWARD_CONFIG=" + filepath.Join(dir, "doorward.yaml")}
	d.write("doorward.yaml", config)
	for i := 0; i+1 < len(files); i += 2 {
		d.write(files[i], files[i+1])
	}
	return d
}

func (d *mailDaemon) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// start starts it, once more if it has ended, and waits until it is ready.
func (d *mailDaemon) start() {
	d.t.Helper()
	p := &daemonProc{cmd: exec.Command("doorward", "serve"), log: newLines(""), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = d.dir, d.env, p.log
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its status is read from ProcessState
		p.log.close()
	}()
	d.mu.Lock()
	if d.proc != nil {
		d.said.WriteString(d.proc.log.String() + "\n")
	}
	d.proc, d.killed = p, false
	d.mu.Unlock()
	if _, ok := p.log.take(regexp.MustCompile(`^ready$`), mailSoon); !ok {
		d.t.Fatalf("%s is not ready:\n%s", d.name, p.log)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range p.log.seen() {
		addr, _ := strings.CutPrefix(line, "listening ")
		if path, ok := strings.CutPrefix(addr, "unix:"); ok {
			d.socket = path
		} else if strings.HasPrefix(addr, "http://") {
			d.url = strings.TrimSuffix(addr, "/")
		}
	}
}

func (d *mailDaemon) address(unix bool) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if unix {
		return d.socket
	}
	return strings.TrimPrefix(d.url, "http://")
}

// kill ends it by SIGKILL.
func (d *mailDaemon) kill() {
	d.t.Helper()
	d.mu.Lock()
	d.killed = true
	d.mu.Unlock()
	if err := d.proc.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	if !d.proc.over(mailSoon) {
		d.t.Fatalf("%s survived its kill", d.name)
	}
}

// stop ends it by SIGTERM. It must end by itself and without an error status.
func (d *mailDaemon) stop() {
	d.t.Helper()
	d.mu.Lock()
	nothing := d.proc == nil || d.killed
	d.mu.Unlock()
	if nothing {
		return
	}
	_ = d.proc.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	if !d.proc.over(15*time.Second + late()) {
		_ = d.proc.cmd.Process.Kill()
		<-d.proc.done
		d.t.Errorf("%s did not end within 15 s", d.name)
	} else if status := d.proc.cmd.ProcessState.ExitCode(); status != 0 { // -1: by a signal
		d.t.Errorf("%s ended: %s", d.name, d.proc.cmd.ProcessState)
	}
	if m := regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: ).*`).FindString(d.stderr()); m != "" {
		d.t.Errorf("%s said %q", d.name, m)
	}
}

func (d *mailDaemon) stderr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc == nil {
		return ""
	}
	return d.said.String() + d.proc.log.String()
}

// human runs an operator's command that has no process of the test above it, because the
// test counts as an agent.
func (d *mailDaemon) human(argv ...string) (out string, status int) {
	d.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Close()
	var both bytes.Buffer
	cmd := exec.Command("adrift", argv...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = d.dir, d.env, &both, &both, []*os.File{w}
	err = cmd.Run() // it waits for the end of the pipe, and so of the command
	w.Close()
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", argv, err, both.String())
	}
	b := make([]byte, 8)
	n, _ := r.Read(b) // nothing: it did not run
	if status, err = strconv.Atoi(string(b[:n])); err != nil {
		d.t.Fatalf("%v: no status, %q\n%s", argv, b[:n], both.String())
	}
	return both.String(), status
}

// sound checks every daemon after its test: the store is consistent, in itself and with the
// record, and the record is complete.
func (d *mailDaemon) sound() {
	d.t.Helper()
	if out, status := d.human("doorward", "agent", "fsck"); status != 0 || !strings.HasSuffix("\n"+out, "\nok\n") {
		d.t.Errorf("fsck of %s: status %d\n%s", d.name, status, out)
	}
	if out, status := d.human("doorward", "audit", "verify"); status != 0 || !strings.HasPrefix(out, "ok: ") {
		d.t.Errorf("audit verify of %s: status %d\n%s", d.name, status, out)
	}
}

// mailRecord is what these tests look at in a record.
type mailRecord struct {
	Source, Action, Decision, Rule, Result, Principal string
	Detail                                            map[string]string
}

// records are those of messaging, oldest first.
func (d *mailDaemon) records() []mailRecord {
	d.t.Helper()
	out, status := d.human("doorward", "audit", "export")
	if status != 0 {
		d.t.Fatalf("audit export: status %d\n%s", status, out)
	}
	var all []mailRecord
	for line := range strings.Lines(out) {
		var r mailRecord
		if json.Unmarshal([]byte(line), &r) == nil && r.Source == "agent_msg" {
			all = append(all, r)
		}
	}
	return all
}

// proxy is another process that speaks to the daemon for the test.
type proxy struct {
	cmd  *exec.Cmd
	name string
	out  *lines
}

// hungUp waits until the process has hung up at the daemon after the test has hung up.
func (p *proxy) hungUp(t *testing.T) {
	t.Helper()
	if _, ok := p.out.take(regexp.MustCompile(`^hung up$`), mailSoon); !ok {
		t.Fatalf("the proxy has not hung up: %s", p.out)
	}
}

// proxy starts one; what the test says through it comes from that process.
func (d *mailDaemon) proxy(name string) *proxy {
	d.t.Helper()
	return d.proxyOver(d.t, name, "unix")
}

// proxyOver is proxy over a network, unix or tcp, for t.
func (d *mailDaemon) proxyOver(t testing.TB, name, network string) *proxy {
	t.Helper()
	p := &proxy{name: fmt.Sprintf("%s-%d-%s", name, os.Getpid(), filepath.Base(d.dir))}
	p.cmd = exec.Command("fakemcp", "proxy", p.name, network, d.address(network == "unix"))
	p.cmd.Env = d.env
	p.out = newLines("")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone
		_ = p.cmd.Wait()
	})
	if _, ok := p.out.take(regexp.MustCompile(`^proxy [0-9]+$`), mailSoon); !ok {
		t.Fatalf("no proxy: %s", p.out)
	}
	return p
}

func (p *proxy) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
