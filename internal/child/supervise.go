package child

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

// Exit statuses of a supervisor whose server never ran; the same words as a shell's.
const (
	exitSupervisor = 125 // wrong call, or something the supervisor needs is missing
	exitCannotRun  = 126
	exitNotFound   = 127
)

// controlFD is the read end of the control pipe. Its end of file is the order to kill everything.
const controlFD = 3

// spareThreads: see provide.
const spareThreads = 3

// killPatience bounds the hunt for descendants that cannot be killed (another uid) or will not die (sleeping in the
// kernel): nobody must wait for these for ever.
const killPatience = 10 * time.Second

// Supervise is the hidden subcommand `doorward child-supervisor -- PATH ARGS…`. It runs one server and returns the exit
// status for os.Exit: the server's own, or 128+N when signal N ended it.
//
// Descriptors 0 to 2 are the server's stdio, 3 is the control pipe, the environment is the server's. SIGTERM goes on to the
// server's process group; every other signal is ignored as soon as the server runs, SIGKILL and SIGSTOP aside. It must run
// on the main goroutine of a process that does nothing else: it changes process-wide state and reaps every child there is.
//
// Words before `--` are reserved for the measures of containment that will be asked for here.
func Supervise(args []string) int {
	// The parent-death signal of the server fires when the thread that forked it ends, not the process (golang/go#27505).
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	if len(args) < 2 || args[0] != "--" {
		return refuse(exitSupervisor, errors.New("usage: child-supervisor -- PATH [ARG…]"))
	}
	if !isPipe(controlFD) {
		return refuse(exitSupervisor, errors.New("descriptor 3 is not a control pipe: this command is started by the daemon alone"))
	}
	if err := contain(); err != nil {
		return refuse(exitSupervisor, err)
	}
	s := &supervisor{signals: make(chan os.Signal, 16), gone: make(chan struct{})}
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGTERM)
	go s.watchControl()
	provide(spareThreads)
	if err := s.start(args[1:]); err != nil {
		return refuse(startStatus(err), fmt.Errorf("starting %s: %w", args[1], err))
	}
	return s.run()
}

// provide makes all the threads that the runtime will ever want here. A server may use up all the processes that its user may
// have, and the runtime ends a program that cannot get a thread. So some threads are made and left idle, more than the
// calls that block here at one time, and the collector, which would ask for more, rests until there is something to collect.
func provide(threads int) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(16 << 20)
	var made, left sync.WaitGroup
	release := make(chan struct{})
	made.Add(threads)
	for range threads {
		left.Go(func() {
			// Locked and waiting, it keeps its thread, and the next one needs another.
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

func startStatus(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitCannotRun
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// supervisor does everything that touches a pid on one goroutine, which is also the only one that reaps: a pid it knows
// cannot become another process's under its hands.
type supervisor struct {
	signals chan os.Signal
	gone    chan struct{} // closed when the control pipe is
	server  int           // pid of the server, 0 once it is reaped
	group   int           // its process group, under the same number
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

// start starts the server in a session and process group of its own, with its stdio and nothing else, and lets go of that
// stdio here: who reads or writes the other ends must see the server's end of file, not ours.
func (s *supervisor) start(argv []string) error {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: serverAttr()}
	pid, err := syscall.ForkExec(argv[0], argv, attr)
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

// run waits for whichever comes first, the end of the server or that of the daemon.
func (s *supervisor) run() int {
	for {
		select {
		case <-s.gone:
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

// reap collects whoever has ended and reports whether the server's main process has.
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

// end kills everything below and returns the server's status. Only direct children are signalled: their pids are certain,
// because nobody else reaps them, and each death hands the next level up to us, so that the rounds go down the tree however
// deep it is. A process that SIGKILL has reached cannot fork any more (the kernel refuses a fork with a fatal signal
// pending), so no stopping is needed first. The end is when the kernel says that there are no children: then there are no
// descendants either.
func (s *supervisor) end() int {
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
	case s.server != 0:
		return exitSupervisor // never reaped: it outlasted killPatience
	case s.status.Signaled():
		return 128 + int(s.status.Signal())
	}
	return s.status.ExitStatus()
}
