package peer

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Watcher reports the ends of processes. One descriptor and one goroutine serve any
// number of processes.
type Watcher struct {
	epoll *os.File // the runtime's poller waits for it, without a thread of its own
	raw   syscall.RawConn

	mu   sync.Mutex
	next uint64
	dead map[uint64]func()
	done sync.WaitGroup
}

// NewWatcher starts a Watcher. Close ends it.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	w := &Watcher{epoll: os.NewFile(uintptr(fd), "epoll"), dead: make(map[uint64]func())}
	if w.raw, err = w.epoll.SyscallConn(); err != nil {
		w.epoll.Close()
		return nil, fmt.Errorf("watching processes: %w", err)
	}
	w.done.Go(w.loop)
	return w, nil
}

// Watch calls dead once when the process of c ends, also when it has already ended. dead
// runs on the watcher's goroutine and must not block. Closing c ends the watch. Without a
// handle on the process (before Linux 5.3) nothing is watched, and the end of the process
// is noticed at the next read from its connection.
func (w *Watcher) Watch(c *attest.Credentials, dead func()) error {
	w.mu.Lock()
	w.next++
	ticket := w.next
	w.dead[ticket] = dead
	w.mu.Unlock()
	watched, err := c.Handle(func(pidfd int) error { return w.add(pidfd, ticket) }, func() { w.forget(ticket) })
	if !watched {
		w.forget(ticket)
	}
	return err
}

// add registers pidfd with epoll for one event, the end of the process.
func (w *Watcher) add(pidfd int, ticket uint64) (err error) {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(ticket), Pad: int32(ticket >> 32)}
	if outer := w.raw.Control(func(fd uintptr) { err = unix.EpollCtl(int(fd), unix.EPOLL_CTL_ADD, pidfd, &e) }); outer != nil {
		err = outer
	}
	if err != nil {
		return fmt.Errorf("watching a process: %w", err)
	}
	return nil
}

// forget drops the function of a ticket. The kernel drops its registration when the
// handle is closed, because the handle has no other descriptor.
func (w *Watcher) forget(ticket uint64) {
	w.mu.Lock()
	delete(w.dead, ticket)
	w.mu.Unlock()
}

// loop reports ended processes until the descriptor is closed.
func (w *Watcher) loop() {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := w.raw.Read(func(fd uintptr) bool {
			var err error
			if n, err = unix.EpollWait(int(fd), events, 0); err == unix.EINTR {
				n = 0
				return true
			}
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			w.report(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
		}
	}
}

func (w *Watcher) report(ticket uint64) {
	w.mu.Lock()
	dead := w.dead[ticket]
	delete(w.dead, ticket)
	w.mu.Unlock()
	if dead != nil {
		dead()
	}
}

// Close ends the watching and waits for a running call of dead. Later ends are not
// reported.
func (w *Watcher) Close() error {
	err := w.epoll.Close()
	w.done.Wait()
	return err
}
