//go:build unix

package process

import (
	"cmp"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stderrGrace is how long standard error may outlive the process: a descriptor that was handed to a stranger keeps the pipe
// open.
const stderrGrace = time.Second

// Process is one server under its supervisor.
type Process struct {
	// Stdin writes to the server. Stop, and the end of the process, close it; closing it earlier is allowed.
	Stdin *os.File
	// Stdout reads from the server. Its io.EOF means that the other end has no holder any more, which is not the end of
	// the process. The caller closes it, at any time; data in the pipe can still be read after Done.
	Stdout *os.File

	server  string
	runner  *Runner
	started time.Time
	stderr  *stderrReader // nil: nobody wants it
	report  *reportReader // nil: the server is not contained
	exit    exitWatch
	group   *cgroup // nil: none
	done    chan struct{}
	err     error // set before done is closed

	mu       sync.Mutex
	control  int // write end of the control pipe, -1 once closed: closing it ends everything
	reaped   bool
	stopping bool
	killing  bool
	step     *time.Timer // next rung of the ladder
}

// launch starts the supervisor. Nothing of the daemon reaches it but the descriptors and the environment in s.
func launch(r *Runner, s Spec, plan *plan) (*Process, error) {
	pipes, err := openPipes(s.Stderr != nil, plan != nil)
	if err != nil {
		return nil, err
	}
	argv := []string{"doorward", subcommand}
	var group *cgroup
	if plan != nil {
		if group = r.groups.make(plan.Limits); group != nil {
			plan.Cgroup = true
		}
		argv = append(argv, planWord)
	}
	argv = append(append(argv, "--", s.Path), s.Args...)
	env := s.Env
	if env == nil {
		env = []string{}
	}
	attr := &syscall.ProcAttr{Dir: s.dir(), Env: env, Files: pipes.theirs(), Sys: &syscall.SysProcAttr{Setsid: true}}
	group.place(attr.Sys)
	exit, err := r.startSupervisor(argv, attr)
	pipes.closeTheirs()
	group.close()
	if err != nil {
		pipes.closeOurs()
		group.remove()
		return nil, err
	}
	p := &Process{
		Stdin:   os.NewFile(uintptr(pipes.stdin.ours), "stdin of "+s.Server),
		Stdout:  os.NewFile(uintptr(pipes.stdout.ours), "stdout of "+s.Server),
		server:  s.Server,
		runner:  r,
		started: time.Now(),
		exit:    exit,
		group:   group,
		done:    make(chan struct{}),
		control: pipes.control.ours,
	}
	if s.Stderr != nil {
		p.stderr = newStderrReader(pipes.stderr.ours, s.Stderr)
	}
	if plan != nil {
		p.report = newReportReader(pipes.report.ours, plan.Mode)
		p.handOver(plan)
	}
	return p, nil
}

// handOver writes the plan to the control pipe, which has room for 64 KiB of it. A stage that reads none of it, or half, starts
// nothing and says so in its report.
func (p *Process) handOver(plan *plan) {
	_, _ = unix.Write(p.control, append([]byte(plan.String()), 0))
}

// dir is where the supervisor starts. It is gone to between fork and exec, where the descriptor is still open.
func (s *Spec) dir() string {
	if s.Folder == nil {
		return s.Dir
	}
	return "/proc/self/fd/" + strconv.Itoa(int(s.Folder.Fd()))
}

// PID is the supervisor's process id.
func (p *Process) PID() int { return p.exit.pid }

// Done is closed when the server and everything it started are gone and its standard error has been delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the server ended: nil before Done and for exit status 0, else an [*ExitError].
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Sandbox is the mode that the server was started with, and what holds of it. Nil measures: it is not contained.
func (p *Process) Sandbox() (mode string, measures []Measure) {
	if p.report == nil {
		return Off, nil
	}
	return p.report.mode, p.report.measures()
}

// StderrCount is the number of bytes that the server wrote to standard error so far, and the number of lines of it that
// were withheld because there were too many. Zero when Spec.Stderr is nil.
func (p *Process) StderrCount() (bytes, withheld int64) {
	if p.stderr == nil {
		return 0, 0
	}
	return p.stderr.bytes.Load(), p.stderr.withheld.Load()
}

// watch starts the goroutine that waits for the end, and where somebody wants standard error the one that reads it. Both
// sleep in the runtime's poller and hold no thread.
func (p *Process) watch() {
	p.runner.o.Log.Info("child started", "server", p.server, "pid", p.PID())
	var drained chan struct{}
	if p.stderr != nil {
		drained = make(chan struct{})
		go func() {
			defer close(drained)
			p.stderr.run()
		}()
	}
	go func() {
		status := p.exit.wait(p.reap)
		p.ended(status, drained)
	}()
}

// reap collects the supervisor's status when there is one. It excludes signal: from here on the pid may be another's.
func (p *Process) reap(collect func() (syscall.WaitStatus, bool)) (syscall.WaitStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, ok := collect()
	p.reaped = p.reaped || ok
	return status, ok
}

func (p *Process) ended(status syscall.WaitStatus, drained <-chan struct{}) {
	p.mu.Lock()
	if p.step != nil {
		p.step.Stop()
	}
	p.closeControl()
	p.mu.Unlock()
	p.Stdin.Close()
	if p.stderr != nil {
		p.stderr.expire(stderrGrace)
		<-drained
	}

	p.err = exitError(status, cmp.Or(p.report.last(), p.group.exceeded()))
	p.group.remove()
	p.runner.o.Log.Info("child ended", "server", p.server, "pid", p.PID(), "status", statusText(p.err),
		"lived", time.Since(p.started).Round(time.Millisecond))
	p.runner.release(p)
	close(p.done)
}

func exitError(s syscall.WaitStatus, limit string) error {
	switch {
	case limit != "":
		return &ExitError{Code: 128 + int(unix.SIGKILL), Limit: limit}
	case s.Signaled():
		return &ExitError{Code: 128 + int(s.Signal()), Supervisor: true}
	case s.ExitStatus() != 0:
		return &ExitError{Code: s.ExitStatus()}
	}
	return nil
}

func statusText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// Stop starts the ladder and returns: standard input is closed now, SIGTERM goes to the server's process group after
// Options.Stdin, SIGKILL to all after Options.Term more. Done is closed at the end. Further calls do nothing.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping || p.reaped {
		return
	}
	p.stopping = true
	p.Stdin.Close()
	if !p.killing {
		p.step = time.AfterFunc(p.runner.o.Stdin, p.terminate)
	}
}

// Kill goes to the last rung at once: everything is killed.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killing || p.reaped {
		return
	}
	p.killing = true
	if p.step != nil {
		p.step.Stop()
	}
	// A server may have stopped its supervisor; SIGCONT lets it see the pipe.
	p.signal(unix.SIGCONT)
	p.closeControl()
	p.step = time.AfterFunc(p.runner.o.LastWatch, p.bypass)
}

// End sends SIGTERM now and kills everything after grace; at once without one. It is Stop for who has nothing to say to the
// server any more. A later call may shorten what an earlier one granted, and does not lengthen it.
func (p *Process) End(grace time.Duration) {
	if grace <= 0 {
		p.Kill()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killing || p.reaped {
		return
	}
	p.signal(unix.SIGCONT)
	p.signal(unix.SIGTERM)
	if p.step != nil && p.stopping {
		time.AfterFunc(grace, p.Kill)
		return
	}
	p.stopping = true
	p.step = time.AfterFunc(grace, p.Kill)
}

func (p *Process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killing || p.reaped {
		return
	}
	p.signal(unix.SIGCONT)
	p.signal(unix.SIGTERM)
	p.step = time.AfterFunc(p.runner.o.Term, p.Kill)
}

// bypass handles a supervisor that does not act, or not fast enough: the daemon kills the supervisor's children, level
// by level, as they become its own, and the supervisor itself only when no child is left, because children that outlive
// it are out of reach. The kernel's list of children may miss one, so it must be empty more than once.
func (p *Process) bypass() {
	p.runner.o.Log.Warn("supervisor is slow to end its server, the daemon helps", "server", p.server, "pid", p.PID())
	empty := 0
	for end := time.Now().Add(killPatience); empty < 3 && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		empty++
		if p.killChildren() {
			empty = 0
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(unix.SIGKILL)
}

// Contains reports whether a process, by its number here, is the server or one of its descendants. It is never true of
// another process: a chain that changes during the look counts as no, and the supervisor keeps its number meanwhile. The
// caller ensures that pid still names the process in question.
func (p *Process) Contains(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && isBelow(pid, p.PID())
}

// killChildren reports whether there was anybody to kill.
func (p *Process) killChildren() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && killChildren(p.PID())
}

// signal needs p.mu: what is not reaped keeps its pid.
func (p *Process) signal(s syscall.Signal) {
	if !p.reaped {
		_ = unix.Kill(p.PID(), s) // fails only when it is already a zombie
	}
}

// shrinkControl gives the room for the plan back.
func (p *Process) shrinkControl() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control >= 0 {
		shrink(p.control)
	}
}

// closeControl needs p.mu.
func (p *Process) closeControl() {
	if p.control >= 0 {
		_ = unix.Close(p.control)
		p.control = -1
	}
}
