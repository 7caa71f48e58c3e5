package attest

// The handle on a process. Invariant: it refers to one process instance as long as it is
// held, even if the pid is reused.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// process is a handle on one process instance: a pidfd, or before Linux 5.3 the open /proc
// directory of the pid, which returns ESRCH once that instance has ended, even if its pid
// was reused. A peer outside of this pid namespace on a kernel without SO_PEERPIDFD has no
// handle. It is marked Foreign and counts as alive until Close.
//
// The descriptor is polled under the lock, so that Close cannot release its number to
// another file meanwhile.
type process struct {
	mu      sync.Mutex
	pidfd   handle
	dir     *os.File
	closed  bool
	onClose []func()
}

// handle is a descriptor plus one, so that the zero value means none.
type handle int

func newHandle(fd int) handle { return handle(fd + 1) }
func (h handle) fd() int      { return int(h) - 1 }
func (h handle) held() bool   { return h > 0 }

// state is the result of checking the process.
type state uint8

const (
	over    state = iota // the process has ended
	letGo                // Close was called; no further check is made
	running              // the process runs
)

func (p *process) alive() bool { return p.state() == running }

func (p *process) state() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return letGo
	case p.pidfd.held() && Exited(p.pidfd.fd()), p.dir != nil && !p.pidfd.held() && ended(p.dir):
		return over
	}
	return running
}

func (p *process) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	for _, f := range p.onClose {
		f()
	}
	var err error
	if p.pidfd.held() {
		err = unix.Close(p.pidfd.fd())
	}
	if p.dir != nil {
		err = errors.Join(err, p.dir.Close())
	}
	return err
}

// OnClose makes Close call f, under a lock; false: Close was already called.
func (c *Credentials) OnClose(f func()) bool {
	p := &c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.onClose = append(p.onClose, f)
	}
	return !p.closed
}

// Handle calls use with the pidfd of the process, which stays open meanwhile. If use
// succeeds, Close will call closed. held is false if there is no pidfd.
func (c *Credentials) Handle(use func(pidfd int) error, closed func()) (held bool, err error) {
	p := &c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.pidfd.held() {
		return false, nil
	}
	if err := use(p.pidfd.fd()); err != nil {
		return false, err
	}
	p.onClose = append(p.onClose, closed)
	return true, nil
}

// Exited reports whether the process of a pidfd has exited: a pidfd becomes readable then.
// An error counts as exited. The call never waits, so it bypasses the Go scheduler.
func Exited(pidfd int) bool {
	for {
		fd := unix.PollFd{Fd: int32(pidfd), Events: unix.POLLIN}
		var now unix.Timespec
		n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		if errno != unix.EINTR {
			return errno != 0 || n != 0
		}
	}
}

// openOld is the method for kernels before 6.5: it opens the directory of the pid and compares
// the uid. The last step checks that the process of the directory has not ended. Until then no
// other process can have its pid, so the pidfd and the start time are those of that process
// too. A pid that was reused before the accept by the same user is not detected, so Instance is
// not attested.
func (p *process) openOld(pid int32, uid uint32) (start uint64, err error) {
	dir, err := os.Open("/proc/" + strconv.Itoa(int(pid)))
	if err != nil {
		return 0, fmt.Errorf("opening the peer's process: %w", ErrGone)
	}
	if start, err = startTime(int(dir.Fd()), "stat"); err != nil {
		dir.Close()
		return 0, ErrGone
	}
	if got, err := effectiveUID(dir); err != nil || got != uid {
		dir.Close()
		return 0, fmt.Errorf("the peer's process has another uid now: %w", ErrGone)
	}
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		dir.Close()
		return 0, ErrGone
	}
	if err == nil {
		p.pidfd = newHandle(fd)
	}
	p.dir = dir
	if ended(dir) {
		p.close()
		return 0, ErrGone
	}
	return start, nil
}

// ended reports whether the process of an open /proc directory has ended or waits to be
// reaped.
func ended(dir *os.File) bool {
	b, err := ReadIn(int(dir.Fd()), "stat")
	if err != nil {
		return true
	}
	f := StatFields(b)
	return len(f) == 0 || bytes.ContainsAny(f[0], "ZXx")
}

func startTime(dir int, name string) (uint64, error) {
	b, err := ReadIn(dir, name)
	if err != nil {
		return 0, err
	}
	return StartOf(b)
}

// StartOf parses the start time in a stat file.
func StartOf(stat []byte) (uint64, error) {
	f := StatFields(stat)
	if len(f) < 20 {
		return 0, errors.New("short stat file")
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// StatFields returns the fields of /proc/PID/stat from the state on. The command name
// before it may contain anything, so the last parenthesis ends it.
func StatFields(b []byte) [][]byte {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	return bytes.Fields(b[i+1:])
}

// effectiveUID reads the uid of the process of an open /proc directory.
func effectiveUID(dir *os.File) (uint32, error) {
	b, err := ReadIn(int(dir.Fd()), "status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if f := bytes.Fields(rest); ok && len(f) > 1 {
			n, err := strconv.ParseUint(string(f[1]), 10, 32)
			return uint32(n), err
		}
	}
	return 0, errors.New("no Uid line")
}
