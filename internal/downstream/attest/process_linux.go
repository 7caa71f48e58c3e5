package attest

// The handle on a process. Invariant: it is that of one process instance for as long
// as it is held, whatever becomes of the pid.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// process is a handle on one process instance: a pidfd, or before Linux 5.3 the
// open /proc directory of the pid, which answers ESRCH once that instance is
// gone, also when its pid was reused. One kind of peer has no handle: a peer
// outside our pid namespace on a kernel without SO_PEERPIDFD. It is marked
// Foreign and counts as alive until Close.
//
// The descriptor is polled under the lock so that Close cannot release its number
// to another file meanwhile.
type process struct {
	mu      sync.Mutex
	pidfd   handle
	dir     *os.File
	closed  bool
	onClose []func()
}

// handle is a descriptor plus one, so that the zero value is none.
type handle int

func newHandle(fd int) handle { return handle(fd + 1) }
func (h handle) fd() int      { return int(h) - 1 }
func (h handle) held() bool   { return h > 0 }

// state is what a look at the process finds.
type state uint8

const (
	over    state = iota // the process has ended
	letGo                // Close was called: nobody looks any more
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

// OnClose has f called by Close, under a lock; false: Close was called already.
func (c *Credentials) OnClose(f func()) bool {
	p := &c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.onClose = append(p.onClose, f)
	}
	return !p.closed
}

// Handle calls use with the pidfd of the process, which stays open meanwhile. When
// use succeeds, Close calls closed. held is false where there is no pidfd.
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

// Exited: a pidfd becomes readable when its process exits. An error counts
// as dead. It never waits, so the scheduler need not hear of the call.
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

// openOld is the way of kernels before 6.5: the pid is opened, and uid and
// start time are compared around it. A pid that was used again before the
// accept by the same user is not detected; Instance is not attested then.
func (p *process) openOld(pid int32, uid uint32) (start uint64, err error) {
	path := "/proc/" + strconv.Itoa(int(pid))
	dir, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("opening the peer's process: %w", ErrGone)
	}
	if start, err = startTime(path + "/stat"); err != nil {
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
	if again, err := startTime(path + "/stat"); err != nil || again != start || ended(dir) {
		p.close()
		return 0, ErrGone
	}
	return start, nil
}

// ReadIn reads a small file below an open /proc directory.
func ReadIn(dir *os.File, name string) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<16))
}

// ended reports whether the process behind an open /proc directory is gone or
// only waits to be reaped.
func ended(dir *os.File) bool {
	b, err := ReadIn(dir, "stat")
	if err != nil {
		return true
	}
	f := StatFields(b)
	return len(f) == 0 || bytes.ContainsAny(f[0], "ZXx")
}

func startTime(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return StartOf(b)
}

// StartOf reads the start time in a stat file.
func StartOf(stat []byte) (uint64, error) {
	f := StatFields(stat)
	if len(f) < 20 {
		return 0, errors.New("short stat file")
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// StatFields returns the fields of /proc/PID/stat from the state on. The command
// name before it may contain anything, so the last parenthesis counts.
func StatFields(b []byte) [][]byte {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return nil
	}
	return bytes.Fields(b[i+1:])
}

// effectiveUID reads the uid of the process behind an open /proc directory.
func effectiveUID(dir *os.File) (uint32, error) {
	b, err := ReadIn(dir, "status")
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
