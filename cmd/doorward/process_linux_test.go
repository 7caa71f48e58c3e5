package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/doortest"
)

// daemonProc is one daemon of a script.
type daemonProc struct {
	cmd  *exec.Cmd
	log  *lines
	done chan struct{}
}

func (p *daemonProc) over(within time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		return false
	}
}

// cmdDaemon starts a daemon and waits until it is ready. A name that is used
// again stands for a restart: the earlier process must be ending.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, true, "daemon [NAME] [VAR=VALUE…] [FLAG…]")
	name := "daemon"
	if len(args) > 0 && args[0][0] != '-' && !pair.MatchString(args[0]) {
		name, args = args[0], args[1:]
	}
	pairs, flags := cutPairs(args)
	s := stageOf(ts)
	if old := s.daemons[name]; old != nil && !old.over(10*time.Second+late()) {
		ts.Fatalf("the earlier daemon %s still runs", name)
	}
	cmd := exec.Command(program(ts, "doorward"), append([]string{"serve"}, flags...)...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts, pairs)
	cmd.WaitDelay = 5 * time.Second // a process that keeps stderr open must not hang the script
	p := &daemonProc{cmd: cmd, log: newLines(ts.MkAbs(name + ".log")), done: make(chan struct{})}
	cmd.Stderr = p.log
	ts.Check(cmd.Start())
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // its status is read from ProcessState
		p.log.close()
	}()
	s.daemons[name] = p
	ts.Defer(func() { p.finish(ts, s.t) })
	if _, ok := p.log.take(pattern(ts, "^ready$"), 30*time.Second+late()); !ok {
		ts.Fatalf("no `ready` on stderr of %s:\n%s", name, p.log)
	}
	p.export(ts)
}

// export sets the variables by which a script reaches the daemon.
func (p *daemonProc) export(ts *testscript.TestScript) {
	ts.Setenv("PID", strconv.Itoa(p.cmd.Process.Pid))
	urls := 0
	for _, line := range p.log.seen() {
		addr, ok := strings.CutPrefix(line, "listening ")
		if path, unix := strings.CutPrefix(addr, "unix:"); unix {
			ts.Setenv("SOCK", path)
		} else if ok {
			urls++
			name := "URL"
			if urls > 1 {
				name += strconv.Itoa(urls)
			}
			ts.Setenv(name, addr)
			_, host, _ := strings.Cut(addr, "://")
			ts.Setenv("HOST"+name[len("URL"):], host)
			ts.Setenv("PORT"+name[len("URL"):], host[strings.LastIndexByte(host, ':')+1:])
		}
	}
}

// finish ends a daemon with its script. It must end by itself and without an error status,
// and must not have reported a data race, a panic or a fatal error.
func (p *daemonProc) finish(ts *testscript.TestScript, t testing.TB) {
	asked := p.cmd.Process.Signal(syscall.SIGTERM) == nil // else it is gone
	if !p.over(15*time.Second + late()) {
		_ = p.cmd.Process.Kill()
		<-p.done
		t.Errorf("a daemon did not end within 15 s and was killed")
	} else if status := p.cmd.ProcessState.ExitCode(); asked && status > 0 {
		t.Errorf("a daemon ended with status %d", status)
	}
	if m := regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: ).*`).FindString(p.log.String()); m != "" {
		t.Errorf("a daemon said %q", m)
	}
	ts.Logf("[stderr of a daemon]\n%s", tail(p.log.String(), 60))
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2 || len(args) == 4, "signal NAME 0|INT|TERM|KILL|HUP|ABRT [STATUS LIMIT]")
	p := stageOf(ts).daemons[args[0]]
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP, "ABRT": syscall.SIGABRT}[args[1]]
	if p == nil || sig == 0 && args[1] != "0" {
		ts.Fatalf("no daemon %s, or no signal %s", args[0], args[1])
	}
	switch sig {
	case 0:
	case syscall.SIGABRT: // to the first thread: one that is just being made would die of it without a word
		ts.Check(unix.Tgkill(p.cmd.Process.Pid, p.cmd.Process.Pid, sig))
	default:
		ts.Check(p.cmd.Process.Signal(sig))
	}
	if len(args) == 2 {
		return
	}
	if !p.over(limit(ts, args[3])) {
		ts.Fatalf("%s still runs after %s", args[0], args[3])
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[2] {
		ts.Fatalf("%s ended with status %s", args[0], got)
	}
}

// cmdExits runs a command that must end by itself, with one status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	within := 30*time.Second + late()
	if len(args) > 1 && args[0] == "-within" {
		within, args = limit(ts, args[1]), args[2:]
	}
	need(ts, neg, len(args) > 1, "exits [-within LIMIT] STATUS [VAR=VALUE…] CMD…")
	pairs, argv := cutPairs(args[1:])
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	out, errs, status, err := run1(ctx, ts, pairs, argv)
	fmt.Fprint(ts.Stdout(), out)
	fmt.Fprint(ts.Stderr(), errs)
	if ctx.Err() != nil {
		ts.Fatalf("it did not end within %s", within)
	}
	ts.Check(err)
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("exit status %d", status)
	}
}

// run1 runs one command to its end. err says that it could not be run.
func run1(ctx context.Context, ts *testscript.TestScript, pairs, argv []string) (out, errs string, status int, err error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, program(ts, argv[0]), argv[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts, pairs)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, 10*time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), err
}

// program finds a program on the script's PATH.
func program(ts *testscript.TestScript, name string) string {
	if strings.Contains(name, "/") {
		return ts.MkAbs(name)
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path
		}
	}
	ts.Fatalf("no program %s", name)
	return ""
}

// cmdWaitfor reads a file, runs a command or sends a request until the result matches.
func cmdWaitfor(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 3, "waitfor LIMIT REGEXP FILE|CMD…|http …")
	re := pattern(ts, args[1])
	last := ""
	look := func() bool {
		last, _, _, _ = run1(context.Background(), ts, nil, args[2:]) // a failure is looked at again
		return re.MatchString(last)
	}
	if args[2] == "http" {
		look = func() bool {
			var answer strings.Builder
			send(ts, &answer, args[3:])
			last = answer.String()
			return re.MatchString(last)
		}
	}
	if len(args) == 3 {
		look = func() bool {
			b, err := os.ReadFile(ts.MkAbs(args[2]))
			last = string(b)
			return err == nil && re.Match(b)
		}
	}
	found := poll(limit(ts, args[0]), look)
	fmt.Fprint(ts.Stdout(), last)
	if !found {
		ts.Fatalf("nothing matches %s within %s", args[1], args[0])
	}
}

// cmdChildren counts the servers that run for this script. They are known by
// $WORK among their arguments. None means that no supervisor is left either.
func cmdChildren(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "children N LIMIT")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var servers, supervisors []string
	ok := poll(limit(ts, args[1]), func() bool {
		servers, supervisors = family(ts.Getenv("WORK"))
		return len(servers) == want && (want > 0 || len(supervisors) == 0)
	})
	if !ok {
		ts.Fatalf("there are %d servers and %d supervisors:\n%s", len(servers), len(supervisors), strings.Join(slices.Concat(servers, supervisors), "\n"))
	}
}

// leaveNothing checks for every script that no server and no supervisor outlives its
// daemon. Those that do are killed.
func leaveNothing(t testing.TB, mark string) {
	var pids []int
	gone := poll(2*time.Second+late(), func() bool {
		servers, supervisors := family(mark)
		pids = pids[:0]
		for _, text := range slices.Concat(servers, supervisors) {
			if pid, err := strconv.Atoi(strings.Split(text, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) == 0
	})
	if gone {
		return
	}
	t.Errorf("processes %v outlived their daemon", pids)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

// family reads /proc for the processes that carry the path mark in an argument. The path of
// another script may begin with mark.
func family(mark string) (servers, supervisors []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), mark+"\x00") && !strings.Contains(string(b), mark+"/") {
			continue // it has ended, is a zombie, or is another script's
		}
		argv := strings.Split(string(b), "\x00")
		text := path + " " + strings.Join(argv, " ")
		switch {
		case filepath.Base(argv[0]) == "fakemcp" && argv[1] != "proxy":
			servers = append(servers, text)
		case len(argv) > 1 && argv[1] == "child-supervisor":
			supervisors = append(supervisors, text)
		}
	}
	return servers, supervisors
}

// cmdBound looks for a listener on the port in the kernel's table of sockets.
func cmdBound(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, false, len(args) == 1, "[!] bound PORT")
	port, err := strconv.Atoi(args[0])
	ts.Check(err)
	who := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		ts.Check(err)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				who = line
			}
		}
	}
	if (who == "") != neg {
		ts.Fatalf("listening on port %d: %q", port, who)
	}
}

// cmdFreeport chooses ports below the range from which the kernel serves port 0, so that no
// other test gets them meanwhile.
func cmdFreeport(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 0, "freeport VAR…")
	for i, port := range doortest.FreePorts(stageOf(ts).t, len(args)) {
		ts.Setenv(args[i], strconv.Itoa(port))
	}
}

func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "capture VAR REGEXP")
	m := pattern(ts, args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("no group of %s in the last output:\n%s", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], m[1])
}

// cmdFilelimit limits the size of the files that a daemon writes, which is a full disk to
// it.
func cmdFilelimit(ts *testscript.TestScript, neg bool, args []string) {
	p := stageOf(ts).daemons[args[0]]
	need(ts, neg, len(args) == 2 && p != nil, "filelimit NAME BYTES|none")
	var l unix.Rlimit
	ts.Check(unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, nil, &l))
	l.Cur = l.Max
	if args[1] != "none" {
		n, err := strconv.ParseUint(args[1], 10, 64)
		ts.Check(err)
		l.Cur = n
	}
	ts.Check(unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &l, nil))
}

// cmdBuild makes one of our own programs, as `make build` does.
func cmdBuild(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "build FILE PACKAGE")
	cmd := exec.Command("go", "build", "-trimpath", "-o", ts.MkAbs(args[0]), ".")
	cmd.Dir = filepath.Join(ts.Getenv("ROOT"), args[1]) // which may be another module
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("go build: %v\n%s", err, out)
	}
}
