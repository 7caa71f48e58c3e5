package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests show that only the operator decides. Processes of real agents try it, after
// leaving their parent and at terminals of their own, in several ways; a real login may
// decide.

// decisions are the commands that only the operator may give. Each process tries the first
// one and another.
var decisions = []string{"doorward approve 1", "doorward deny 1", "doorward ui --print", "doorward trust byhand --yes", "doorward agent hold purge 01JC000000000000000000000A"}

// ownTerminals run a script at a terminal of their own, by different means.
var ownTerminals = map[string]string{
	"posix_openpt": `pty sh %s`,
	"script":       `script -qec 'sh %s' /dev/null`,
	"tmux":         `tmux -f /dev/null -S %[1]s.tmux new-session -d 'sh %[1]s'`,
	"shell":        `pty sh -c 'exec sh %s'`,
}

// waysOut are the ways in which a command leaves the agent that starts it.
var waysOut = map[string]string{
	"child":                  `%s`,
	"setsid":                 `setsid -w %s`,
	"double fork":            `(setsid sh -c "sleep 0.1; exec $0" & )`,
	"nohup":                  `(nohup %s >/dev/null 2>&1 & )`,
	"double fork, no setsid": `(%s & )`,
	"triple fork":            `(setsid sh -c '(setsid "$@" & )' sh %s & )`,
}

// reaperMain adopts the orphans of the program that it runs.
func reaperMain() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "reaper:", err)
		os.Exit(1)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
	}
	for err == nil {
		if _, gone := syscall.Wait4(-1, nil, 0, nil); gone != nil {
			break // nothing is left
		}
	}
	if err != nil {
		os.Exit(1)
	}
}

// askingAgent is a shell with a connection to the daemon, through which it has asked for a
// held call. It runs the lines that it reads.
const askingAgent = `
mkfifo "$D/to"
doorward connect <"$D/to" >"$D/from" 2>"$D/shim.log" &
exec 3>"$D/to"
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}' >&3
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&3
printf '%s\n' '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"progressToken":"p"},"name":"echo__count","arguments":{"a":1}}}' >&3
n=0; until grep -q '"progressToken":"p"' "$D/from" || [ $n -gt 300 ]; do sleep 0.1; n=$((n+1)); done
echo ready
while read -r line; do
	sh -c "$line" </dev/null 3>&- || true
done
echo over
`

type decidingAgent struct {
	t     *testing.T
	dir   string
	stdin io.WriteCloser
	out   *lines
	cmd   *exec.Cmd
}

func startAsking(t *testing.T, d *mailDaemon, above ...string) *decidingAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "dwdecides") // short, for the sockets of tmux
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	argv := append(above, "bash", "-c", askingAgent)
	a := &decidingAgent{t: t, dir: dir, out: newLines("")}
	a.cmd = exec.Command(argv[0], argv[1:]...)
	a.cmd.Dir, a.cmd.Env, a.cmd.Stdout, a.cmd.Stderr = dir, append(d.env, "D="+dir), a.out, a.out
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.cmd.WaitDelay = time.Second
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.end)
	a.expect("ready")
	return a
}

// leave ends the agent. The processes that left it go on, and so does what adopted them.
func (a *decidingAgent) leave() {
	a.stdin.Close()
	a.expect("over")
}

func (a *decidingAgent) end() {
	a.stdin.Close()
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

func (a *decidingAgent) expect(line string) {
	a.t.Helper()
	if !poll(mailSoon, func() bool { return strings.Contains(a.out.String(), line) }) {
		a.t.Fatalf("the agent did not say %q:\n%s", line, a.out.String())
	}
}

// tried writes a script that makes the file begin.here, and gives two of the decisions once
// the file begin exists, into result.
func (a *decidingAgent) tried(name string, other int) (script, result, begin string) {
	script, result, begin = filepath.Join(a.dir, name+".sh"), filepath.Join(a.dir, name+".out"), filepath.Join(a.dir, name+".go")
	var b strings.Builder
	fmt.Fprintf(&b, "exec 3>&-\n: >%[2]s.here\nexport PATH=%[1]q\nn=0; until [ -e %[2]s ] || [ $n -gt 600 ]; do sleep 0.1; n=$((n+1)); done\n(\n", os.Getenv("PATH"), begin)
	for _, c := range []string{decisions[0], decisions[1+other%(len(decisions)-1)]} {
		fmt.Fprintf(&b, "%s; echo \"status $?\"\n", c)
	}
	fmt.Fprintf(&b, ") >%s.part 2>&1; mv %s.part %s\n", result, result, result)
	if err := os.WriteFile(script, []byte(b.String()), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return script, result, begin
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func awaitFile(t *testing.T, path string) (text string) {
	t.Helper()
	if !poll(mailSoon, func() bool { b, err := os.ReadFile(path); text = string(b); return err == nil }) {
		t.Fatalf("%s did not come", path)
	}
	return text
}

// heldCount is a daemon that holds one tool.
func heldCount(t *testing.T) *mailDaemon {
	return startMail(t, "deciding", `listen: {http: [{addr: "127.0.0.1:0"}]}
approvals: {wait: 10m}
mcpServers:
  echo: {command: fakemcp, doorward: {tools: {ask: [count]}}}
  byhand: {command: fakemcp, doorward: {trust: manual}}
`)
}

// A login that does not belong to the agent decides, although it begins after the agent.
func TestALoginDecides(t *testing.T) {
	if r := theResident(); r.err != nil {
		t.Fatal(r.err)
	}
	if os.Geteuid() != 0 {
		t.Skip("a login needs root")
	}
	d := heldCount(t)
	startAsking(t, d, "sh", "-c", `echo 0 >/proc/self/loginuid; exec "$@"`, "sh") // as pam_loginuid does
	out := atLogin(t, d, "doorward approve 1; echo status $?")
	if !strings.Contains(out, "status 0") {
		t.Errorf("a login may not approve:\n%s", out)
	}
}

// atLogin runs a command in a login shell that the system's login program starts, below the
// first process of the system.
func atLogin(t *testing.T, d *mailDaemon, command string) string {
	t.Helper()
	master, slave := openTerminal(t)
	defer master.Close()
	env := append([]string{"TERM=dumb"}, d.env...)
	getty := exec.Command("sh", "-c", "exec 3<&0; setsid --ctty login -p -f root <&3 3<&- & exit 0")
	getty.Env, getty.Stdin, getty.Stdout, getty.Stderr = env, slave, slave, slave
	err := getty.Run()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(master, " export PATH='%s'; %s; exit\n", os.Getenv("PATH"), command)
	b, _ := io.ReadAll(master) // it ends with the terminal
	return string(b)
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err1 := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	slave, err3 := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestNoOrphanOfAnAgentDecides(t *testing.T) {
	t.Parallel()
	for _, above := range []string{"init", "subreaper"} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("adopted by %s, agent ended %v", above, ended), func(t *testing.T) {
				t.Parallel()
				d := heldCount(t)
				var prefix []string
				if above == "subreaper" {
					prefix = []string{"reaper", "setsid", "-w"}
				}
				noneDecides(t, d, startAsking(t, d, prefix...), ended)
			})
		}
	}
}

// noneDecides starts a process for each way out and each terminal, and expects that its
// decisions are refused.
func noneDecides(t *testing.T, d *mailDaemon, a *decidingAgent, ended bool) {
	results := map[string]string{}
	var begins []string
	for way, leave := range waysOut {
		for terminal, open := range ownTerminals {
			if ended && (way == "child" || way == "setsid") {
				continue // they are the agent's own children, which it waits for
			}
			name := strings.NewReplacer(" ", "-", ",", "").Replace(way + "-" + terminal)
			script, result, begin := a.tried(name, len(begins))
			if !ended {
				touch(t, begin)
			}
			fmt.Fprintln(a.stdin, escape(leave, fmt.Sprintf(open, script)))
			results[way+", "+terminal] = result
			begins = append(begins, begin)
		}
	}
	if ended {
		for _, b := range begins {
			awaitFile(t, b+".here")
		}
		a.leave()
		for _, b := range begins {
			touch(t, b)
		}
	}
	for what, path := range results {
		got := awaitFile(t, path)
		if n := strings.Count(got, "status 3\n"); n != 2 {
			t.Errorf("%s: %d of 2 refused:\n%s", what, n, got)
		}
	}
	record, err := exec.Command("sh", "-c", "cat "+filepath.Join(d.dir, "s", "audit", "*.jsonl")).Output()
	if err != nil || bytes.Contains(record, []byte(`"approval.granted"`)) || bytes.Contains(record, []byte(`"approval.denied"`)) {
		t.Errorf("something was decided (%v)", err)
	}
}

// escape puts a command into a way out, which may quote it.
func escape(way, command string) string {
	if strings.Contains(way, "$0") {
		return strings.Replace(way, "exec $0", strings.NewReplacer(`"`, `\"`, `$`, `\$`).Replace(command), 1)
	}
	return strings.Replace(way, "%s", command, 1)
}
