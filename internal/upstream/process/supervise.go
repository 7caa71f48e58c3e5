//go:build unix

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit statuses of a supervisor whose server never ran, as a shell uses them.
const (
	exitSupervisor = 125 // wrong call, or something that the supervisor needs is missing
	exitCannotRun  = 126
	exitNotFound   = 127
)

// spareThreads is the number of threads for provide.
const spareThreads = 3

// killPatience bounds the time spent on descendants that cannot be killed (another uid) or do not die (blocked in the
// kernel).
const killPatience = 10 * time.Second

// Words that mark the stages of a contained server.
const (
	innerWord = "--inner"
	planWord  = "--plan"
)

// call holds the arguments of a stage: child-supervisor [--inner|--plan] -- PATH ARG…
type call struct {
	inner bool
	plan  *plan // nil: the server is not contained, or this is the second stage
	argv  []string
}

func parseCall(args []string) (call, error) {
	var c call
	word := ""
	if len(args) > 0 && (args[0] == innerWord || args[0] == planWord) {
		word, args = args[0], args[1:]
	}
	if len(args) < 2 || args[0] != "--" {
		return c, errors.New("usage: child-supervisor [--plan] -- PATH [ARG…]")
	}
	c.argv, c.inner = args[1:], word == innerWord
	if !isPipe(controlFD) || word != "" && !isPipe(reportFD) {
		return c, errors.New("no control pipe: only the daemon can start this command")
	}
	if word != planWord {
		return c, nil
	}
	var err error
	c.plan, err = readPlan()
	return c, err
}

// readPlan reads the plan from the control pipe, up to the NUL byte that ends it.
func readPlan() (*plan, error) {
	var text []byte
	for {
		chunk := make([]byte, 4096)
		n, err := unix.Read(controlFD, chunk)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return nil, errors.New("the plan of the sandbox is cut off")
		}
		text = append(text, chunk[:n]...)
		if end := len(text) - 1; text[end] == 0 {
			return parsePlan(string(text[:end]))
		}
	}
}

// supervise runs the hidden subcommand `doorward child-supervisor [--plan] -- PATH ARGS…`. It runs one server and returns the
// exit status for os.Exit: the server's own, or 128+N when signal N ended it.
//
// Descriptors 0 to 2 are the server's stdio. 3 is the control pipe, which begins with the plan if there is one; 4 is
// then the pipe for notes to the daemon. The environment is the server's. SIGTERM is forwarded to the server's
// process group; every other signal except SIGKILL and SIGSTOP is ignored as soon as the server runs. supervise must
// run on the main goroutine of a process that does nothing else: it changes process-wide state and reaps all
// children.
//
// With a plan it runs twice, one below the other. The daemon knows the first one. The second one, marked by --inner,
// is process 1 of the server's own namespaces: it builds the sandbox of the plan around itself, and starts the
// server. When it ends, the kernel kills all other processes of its namespace.
func supervise(args []string) int {
	// The server's parent-death signal is sent when the thread that forked it ends, not the process
	// (golang/go#27505).
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	c, err := parseCall(args)
	if err != nil {
		return refuse(exitSupervisor, err)
	}
	if c.inner {
		return inner(c)
	}
	if err := contain(); err != nil {
		return refuse(exitSupervisor, err)
	}
	s := newSupervisor()
	go s.watchControl()
	provide(spareThreads)
	if c.plan != nil {
		err = s.adopt(startInner(c))
	} else if err = s.exec(c.argv, serverAttr()); err != nil {
		return cannotStart(c.argv[0], err)
	}
	if err != nil {
		return refuse(exitSupervisor, err)
	}
	return s.run()
}

func newSupervisor() *supervisor {
	s := &supervisor{signals: make(chan os.Signal, 16), gone: make(chan struct{}), ended: make(chan string, 1)}
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGTERM)
	return s
}

// provide makes the threads that the runtime will need. A server may use up all processes of its user, and the
// runtime ends a program that cannot get a thread. So some threads are made and left idle, more than the calls that
// block here at one time. The garbage collector, which would need more threads, runs only at the memory limit.
func provide(threads int) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(16 << 20)
	var made, left sync.WaitGroup
	release := make(chan struct{})
	made.Add(threads)
	for range threads {
		left.Go(func() {
			// While it is locked and waits it keeps its thread, so the next one needs another.
			runtime.LockOSThread()
			made.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	made.Wait()
	close(release)
	left.Wait()
}

func refuse(status int, err error) int {
	fmt.Fprintln(os.Stderr, "doorward:", err)
	return status
}

// cannotStart reports that the server's program cannot be executed, and returns the exit status.
func cannotStart(program string, err error) int {
	status := exitCannotRun
	if errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return refuse(status, fmt.Errorf("starting %s: %w", program, err))
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// supervisor uses pids on one goroutine only, which is also the only one that reaps. So a pid that it knows cannot be
// reused meanwhile.
type supervisor struct {
	signals chan os.Signal
	gone    chan struct{} // closed when the control pipe is closed
	ended   chan string   // the limit for which the server has to end
	server  int           // pid of the server or of the second stage, 0 once it is reaped
	group   int           // its process group, the same number
	alone   bool          // this is process 1 of a namespace, whose processes end with it
	status  syscall.WaitStatus
}

func (s *supervisor) watchControl() {
	var b [1]byte
	for {
		n, err := unix.Read(controlFD, b[:])
		if n > 0 || err == unix.EINTR {
			continue
		}
		close(s.gone)
		return
	}
}

// exec starts the server in a session and process group of its own, with its stdio and nothing else.
func (s *supervisor) exec(argv []string, how *syscall.SysProcAttr) error {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: how}
	return s.adopt(syscall.ForkExec(argv[0], argv, attr))
}

// adopt records the started process, and closes its stdio in this process: readers and writers of the other ends must
// see the server close it.
func (s *supervisor) adopt(pid int, err error) error {
	if err != nil {
		return err
	}
	s.server, s.group = pid, pid
	disarm()
	dropStdio()
	return nil
}

func dropStdio() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range 3 {
		if err != nil || unix.Dup2(null, fd) != nil {
			_ = unix.Close(fd)
		}
	}
	if err == nil {
		_ = unix.Close(null)
	}
}

// run waits for the end of the server, for that of the daemon or for an exceeded limit, and then ends all processes.
func (s *supervisor) run() int {
	for {
		select {
		case <-s.gone:
			return s.end()
		case why := <-s.ended:
			tell(note{Limit: why})
			return s.end()
		case sig := <-s.signals:
			if s.reap() {
				return s.end()
			}
			if sig == unix.SIGTERM {
				_ = unix.Kill(-s.group, unix.SIGTERM)
			}
		}
	}
}

// reap collects ended children and reports whether the server's main process is
// among them.
func (s *supervisor) reap() bool {
	for {
		pid, status, err := s.reapOne()
		if pid <= 0 || err != nil {
			return s.server == 0
		}
		s.note(pid, status)
	}
}

func (s *supervisor) note(pid int, status syscall.WaitStatus) {
	if pid == s.server {
		s.server, s.status = 0, status
	}
}

func (s *supervisor) reapOne() (int, syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|waitAll, nil)
		if err != syscall.EINTR {
			return pid, status, err
		}
	}
}

// end kills all descendants and returns the server's status. It signals only direct children: their pids are certain,
// because only this process reaps them. Each death makes the next level its children, so the rounds reach every depth
// of the tree. A process that SIGKILL has reached cannot fork any more (the kernel refuses a fork with a fatal signal
// pending), so stopping it first is unnecessary. The loop ends when the kernel reports no children: then there are no
// descendants either.
func (s *supervisor) end() int {
	if s.alone {
		return s.exitCode()
	}
	nap := 100 * time.Microsecond
	for end := time.Now().Add(killPatience); time.Now().Before(end); {
		killTree(s.group)
		reaped := 0
		for {
			pid, status, err := s.reapOne()
			if err == syscall.ECHILD {
				return s.exitCode()
			}
			if pid <= 0 || err != nil {
				break
			}
			reaped++
			s.note(pid, status)
		}
		if reaped > 0 {
			nap = 100 * time.Microsecond
			continue
		}
		time.Sleep(nap)
		nap = min(2*nap, 10*time.Millisecond)
	}
	return s.exitCode()
}

func (s *supervisor) exitCode() int {
	switch {
	case s.server != 0 && s.alone:
		return 128 + int(unix.SIGKILL) // the kernel kills the server when this process ends
	case s.server != 0:
		return exitSupervisor // it was not reaped within killPatience
	case s.status.Signaled():
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}
