package peer

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller calls functions when descriptors can be read. One descriptor and one goroutine
// serve any number of them.
type poller struct {
	epoll *os.File // the runtime's poller waits for it, without a thread of its own
	raw   syscall.RawConn
	on    uint32 // the events to report, of unix.EPOLLIN and unix.EPOLLRDHUP

	mu    sync.Mutex
	next  uint64
	waits map[uint64]func() // by ticket
	done  sync.WaitGroup
}

// open starts the poller for some events. The kernel reports errors and the end of both halves of
// a connection too.
func (p *poller) open(on uint32) error {
	p.on = on
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("making an epoll descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return fmt.Errorf("making an epoll descriptor: %w", err)
	}
	p.epoll, p.waits = os.NewFile(uintptr(fd), "epoll"), make(map[uint64]func())
	if p.raw, err = p.epoll.SyscallConn(); err != nil {
		p.epoll.Close()
		return fmt.Errorf("using an epoll descriptor: %w", err)
	}
	p.done.Go(p.loop)
	return nil
}

// enter notes f under a new ticket.
func (p *poller) enter(f func()) (ticket uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.waits[p.next] = f
	return p.next
}

// add registers a descriptor for one event, also again after an earlier one. The kernel drops
// the registration when the descriptor is closed, if it has no duplicate.
func (p *poller) add(fd int, ticket uint64) (err error) {
	e := unix.EpollEvent{Events: p.on | unix.EPOLLONESHOT, Fd: int32(ticket), Pad: int32(ticket >> 32)}
	outer := p.raw.Control(func(epoll uintptr) {
		if err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &e); err == unix.EEXIST {
			err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, fd, &e)
		}
	})
	if outer != nil {
		err = outer
	}
	if err != nil {
		return fmt.Errorf("watching a descriptor: %w", err)
	}
	return nil
}

// take removes the function of a ticket and returns it; nil: it was taken before.
func (p *poller) take(ticket uint64) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.waits[ticket]
	delete(p.waits, ticket)
	return f
}

// loop reports events until the descriptor is closed.
func (p *poller) loop() {
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
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
			if f := p.take(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); f != nil {
				f()
			}
		}
	}
}

// Close ends the watching and waits for a function that the loop has called. Later events are
// not reported.
func (p *poller) Close() error {
	err := p.epoll.Close()
	p.done.Wait()
	return err
}
