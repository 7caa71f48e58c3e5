//go:build unix

package process

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stderrGrace is how long standard error may stay open after the end of the process: a descriptor that another
// process has received keeps the pipe open.
const stderrGrace = time.Second

// Process is one server under its supervisor.
type Process struct {
	// Stdin writes to the server. Stop, and the end of the process, close it; closing it earlier is allowed.
	Stdin *os.File
	// Stdout reads from the server. Its io.EOF means that no process holds the other end any more, which is not the
	// end of the server. The caller closes it, at any time; data in the pipe can still be read after Done.
	Stdout *os.File

	server  string
	runner  *Runner
	started time.Time
	stderr  *stderrReader // nil: it goes to the null device
	report  *reportReader // nil: the server is not contained
	exit    exitWatch
	group   *cgroup // nil: none
	done    chan struct{}
	err     error // set before done is closed

	mu       sync.Mutex
	control  int // write end of the control pipe, -1 once closed; closing it ends everything
	reaped   bool
	stopping bool
	killing  bool
	step     *time.Timer // next step of Stop
}

// launch starts the supervisor. It inherits nothing of the daemon but the descriptors and the environment in s.
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

// handOver writes the plan to the control pipe. A pipe has room for 64 KiB, and for two pages if the user has many, so
// the rest of a longer plan is written as the stage reads.
func (p *Process) handOver(plan *plan) {
	rest := append([]byte(plan.String()), 0)
	for end := time.Now().Add(reportPatience); len(rest) > 0; {
		n, err := unix.Write(p.control, rest)
		rest = rest[max(n, 0):]
		switch {
		case err == unix.EAGAIN && time.Now().Before(end):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(p.control), Events: unix.POLLOUT}}, 100)
		case err != nil && err != unix.EINTR:
			p.report.unsent = fmt.Errorf("sending the plan of the sandbox, with %d bytes left: %w", len(rest), err)
			return
		}
	}
}

// dir returns the supervisor's working directory. It is entered between fork and exec, when the descriptor of Folder
// is still open.
func (s *Spec) dir() string {
	if s.Folder == nil {
		return s.Dir
	}
	return "/proc/self/fd/" + strconv.Itoa(int(s.Folder.Fd()))
}

// PID returns the supervisor's process id.
func (p *Process) PID() int { return p.exit.pid }

// Done is closed when the server and everything it started are gone and its standard error has been delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the server ended: nil before Done and for exit status 0, else an [*ExitError].
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Sandbox returns the mode of the server's sandbox and its measures. Nil measures: it is not contained.
func (p *Process) Sandbox() (mode string, measures []Measure) {
	if p.report == nil {
		return Off, nil
	}
	return p.report.mode, p.report.measures()
}

// StderrCount returns the number of bytes that the server has written to standard error, and the number of its lines
// that were withheld because there were too many. Zeros when Spec.Stderr is nil.
func (p *Process) StderrCount() (bytes, withheld int64) {
	if p.stderr == nil {
		return 0, 0
	}
	return p.stderr.bytes.Load(), p.stderr.withheld.Load()
}

// watch starts the goroutine that waits for the end, and the one that reads standard error if Spec.Stderr is set.
// Both sleep in the runtime's poller and hold no thread.
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

// reap collects the supervisor's status if there is one. It excludes signal, because afterwards the pid may be
// reused.
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

// Stop ends the server in steps and returns at once: standard input is closed now, SIGTERM goes to the server's
// process group after Options.Stdin, SIGKILL to all after a further Options.Term. Done is closed at the end. Further
// calls do nothing.
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

// Kill takes the last step of Stop at once: everything is killed.
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
	// A server may have stopped its supervisor; SIGCONT lets it read the pipe.
	p.signal(unix.SIGCONT)
	p.closeControl()
	p.step = time.AfterFunc(p.runner.o.LastWatch, p.bypass)
}

// End sends SIGTERM now and kills everything after grace, or at once without one. Unlike Stop it does not wait for
// the server to end at the end of its standard input. A later call may shorten the grace of an earlier one, and does
// not lengthen it.
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

// bypass handles a supervisor that does not act, or not fast enough. The daemon kills the supervisor's children,
// level by level as they become its own. It kills the supervisor itself only when no child is left, because children
// that outlive it are out of reach. The kernel's list of children may miss one, so it must be empty several times.
func (p *Process) bypass() {
	p.runner.o.Log.Warn("a supervisor is slow to end its server: the daemon ends it too", "server", p.server, "pid", p.PID())
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

// Contains reports whether a process, by its pid in the daemon's namespace, is the server or one of its descendants.
// It is never true of another process: a chain of parents that changes during the look counts as no, and the
// supervisor keeps its pid meanwhile. The caller ensures that pid still names the process in question.
func (p *Process) Contains(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && isBelow(pid, p.PID())
}

// killChildren kills the supervisor's children and reports whether there were any.
func (p *Process) killChildren() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && killChildren(p.PID())
}

// signal sends a signal to the supervisor. The caller holds mu, so the pid cannot be reaped and reused meanwhile.
func (p *Process) signal(s syscall.Signal) {
	if !p.reaped {
		_ = unix.Kill(p.PID(), s) // fails only when it is already a zombie
	}
}

// shrinkControl releases the room for the plan.
func (p *Process) shrinkControl() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control >= 0 {
		shrink(p.control)
	}
}

// closeControl closes the control pipe. The caller holds mu.
func (p *Process) closeControl() {
	if p.control >= 0 {
		_ = unix.Close(p.control)
		p.control = -1
	}
}
