package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const agentCount = 8

// The limits are out of reach: the test checks what is kept, not what is refused.
const configuration = `listen: {http: []}
agent: {mailbox_messages: 1000000, mailbox_bytes: 1073741824, sender_messages: 1000000, sends_per_minute: 100000, attempts: 100}
limits: {calls_per_second: 1000000}
store: {any_filesystem: true}
`

// daemon is the subject that runs the real doorward with its state on the disk, and eight agents
// that write to each other. One agent reads and acknowledges.
type daemon struct {
	bin, work string
	dir       string
	serve     *exec.Cmd
	agents    *exec.Cmd
	out       chan []string

	acking map[string]string // sender of each message that was about to be acknowledged, by ID/RECIPIENT
	acked  []string
}

func doorward(bin string) func(string) subject {
	return func(work string) subject {
		return &daemon{bin: bin, work: work, acking: make(map[string]string)}
	}
}

func (d *daemon) command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.bin, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.work,
		"DOORWARD_CONFIG=" + filepath.Join(d.work, "doorward.yaml"),
		"DOORWARD_STATE_DIR=" + filepath.Join(d.dir, "state"),
		"DOORWARD_RUNTIME_DIR=" + filepath.Join(d.work, "run")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (d *daemon) start(dir string) error {
	d.dir = dir
	if err := os.WriteFile(filepath.Join(d.work, "doorward.yaml"), []byte(configuration), 0o600); err != nil {
		return err
	}
	log, err := os.Create(d.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	d.serve = d.command("serve")
	d.serve.Stderr = log
	if err := d.serve.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(d.logFile()); bytes.Contains(text, []byte("\nready\n")) {
			return nil
		}
		if syscall.Kill(d.serve.Process.Pid, 0) != nil {
			break
		}
	}
	return d.because(errors.New("the daemon does not start"))
}

func (d *daemon) logFile() string { return filepath.Join(d.work, "serve.log") }

// because adds the end of the daemon's log to the error.
func (d *daemon) because(err error) error {
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(d.logFile())
	return fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2048):])
}

func (d *daemon) program(verb string) *exec.Cmd {
	self, _ := os.Executable()
	cmd := exec.Command(self, "agents", verb, filepath.Join(d.work, "run", "doorward.sock"), strconv.Itoa(agentCount))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (d *daemon) begin(dir string) error {
	if err := d.start(dir); err != nil {
		return err
	}
	d.agents = d.program("send")
	out, err := d.agents.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.agents.Start(); err != nil {
		return err
	}
	in := bufio.NewReader(out)
	first, err := in.ReadString('\n')
	if err != nil {
		return d.because(fmt.Errorf("the agents send nothing: %w", errors.Join(err, d.agents.Wait())))
	}
	d.out = make(chan []string, 1)
	go func() { d.out <- append(lines(in), first[:len(first)-1]) }()
	return nil
}

// kill kills the daemon. The agents end by themselves after they have read the answers still in
// transit.
func (d *daemon) kill() ([]string, error) {
	if d.serve == nil || d.serve.Process == nil {
		return nil, nil
	}
	_ = d.serve.Process.Kill()
	_ = d.serve.Wait()
	if d.serve.ProcessState.Exited() {
		return nil, d.because(errors.New("the daemon ended before it was killed"))
	}
	if d.out == nil {
		return nil, nil
	}
	said := <-d.out
	if err := d.agents.Wait(); err != nil {
		return nil, d.because(fmt.Errorf("the agents: %w", err))
	}
	var sent []string
	for _, line := range said {
		switch f := strings.Fields(line); f[0] {
		case "sent":
			sent = append(sent, f[1])
		case "acking":
			if err := d.given(f[1], f[3]); err != nil {
				return nil, err
			}
			d.acking[f[1]] = f[2]
		case "acked":
			d.acked = append(d.acked, f[1])
		}
	}
	return sent, nil
}

// given fails when a message is delivered again without its redelivered mark.
func (d *daemon) given(key, redelivered string) error {
	if _, before := d.acking[key]; before && redelivered != "true" {
		return fmt.Errorf("message %s came twice without its mark", key)
	}
	return nil
}

// stored checks the state from outside: the daemon's own checks first, then the agents'
// mailboxes, then the audit log.
func (d *daemon) stored(dir string, answered []string) ([]string, error) {
	if err := d.start(dir); err != nil {
		return nil, err
	}
	stored, err := d.look(answered)
	_ = d.serve.Process.Signal(syscall.SIGTERM)
	if endErr := d.serve.Wait(); err == nil && endErr != nil {
		err = fmt.Errorf("the daemon at its end: %w", endErr)
	}
	return stored, d.because(err)
}

func (d *daemon) look(answered []string) ([]string, error) {
	before := d.check("agent", "fsck")
	stored, err := d.read()
	if err != nil {
		return nil, errors.Join(before, err)
	}
	return stored, errors.Join(before, d.check("agent", "fsck"), d.check("audit", "verify"), d.recorded(answered))
}

// check runs a command that must succeed.
func (d *daemon) check(args ...string) error {
	if out, err := d.command(args...).CombinedOutput(); err != nil {
		return fmt.Errorf("doorward %s: %w\n%s", strings.Join(args, " "), err, out[:min(len(out), 1024)])
	}
	return nil
}

// read asks for the state of each message in d.acking, and empties the mailboxes. A message whose
// acknowledgement was answered must be `acked`. If the acknowledgement was not answered, the
// message is either `acked` or still in its mailbox.
func (d *daemon) read() ([]string, error) {
	cmd := d.program("read")
	var questions strings.Builder
	for key, sender := range d.acking {
		fmt.Fprintln(&questions, key, sender)
	}
	cmd.Stdin = strings.NewReader(questions.String())
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the agents: %w", err)
	}
	var stored []string
	states := make(map[string]string)
	for _, line := range lines(bufio.NewReader(bytes.NewReader(out))) {
		f := strings.Fields(line) // have KEY REDELIVERED, state KEY STATE
		if f[0] == "have" {
			stored = append(stored, f[1])
			err = errors.Join(err, d.given(f[1], f[2]))
			continue
		}
		states[f[1]] = f[2]
		if f[2] == "acked" {
			stored = append(stored, f[1])
		}
	}
	for _, key := range d.acked {
		if states[key] != "acked" {
			return nil, fmt.Errorf("the acknowledgement of %s was answered, and it is %q", key, states[key])
		}
	}
	return stored, err
}

// recorded checks that each answered message has an audit record.
func (d *daemon) recorded(answered []string) error {
	out, err := d.command("audit", "export").Output()
	if err != nil {
		return fmt.Errorf("doorward audit export: %w", err)
	}
	seen := make(map[string]bool)
	for line := range bytes.Lines(out) {
		var r struct {
			Source, Action, Decision string
			Detail                   map[string]string
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("an audit line: %w", err)
		}
		if r.Source != "agent_msg" || r.Action != "agent.send" || r.Decision != "allow" {
			continue
		}
		for _, value := range r.Detail {
			seen[value] = true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(answered), func(key string) bool {
		id, _, _ := strings.Cut(key, "/")
		return seen[id]
	})
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d answered messages have no audit record, %s is the first", len(missing), len(answered), missing[0])
	}
	return nil
}
