package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Unread returns how much data was written to c, a connection within this machine, and
// not yet read by the process at its other end; 0: all was read. Only zero is comparable:
// a Unix socket counts the memory of whole writes, TCP counts bytes.
//
// For a Unix socket SIOCOUTQ suffices: the memory of a write belongs to the writer until
// it is read. For TCP it counts the bytes that the other end has not acknowledged, and
// bytes are acknowledged when they are in its receive buffer. That buffer is therefore
// read too (NETLINK_SOCK_DIAG), after the first. A peer on another machine or in another
// network namespace has no socket here: ErrUnreadUnknown.
func Unread(c net.Conn) (int, error) {
	n, err := unsent(c)
	if err != nil || n > 0 {
		return n, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return waiting(tcp)
	}
	return 0, nil
}

// unsent returns SIOCOUTQ, the bytes in the socket's own send queue.
func unsent(c net.Conn) (n int, err error) {
	outer := control(c, func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if err = errors.Join(outer, err); errors.Is(err, ErrUnreadUnknown) {
		return 0, ErrUnreadUnknown
	}
	if err != nil {
		return 0, fmt.Errorf("reading the send queue: %w", err)
	}
	return n, nil
}

// HungUp reports whether the process at the other end has closed c, or its half for writing.
// It is true as soon as the kernel has the end, also while data in front of it is unread.
func HungUp(c net.Conn) (hung bool) {
	_ = control(c, func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		hung = n > 0 && err == nil
	})
	return hung
}

// control calls f with the descriptor of a connection.
func control(c net.Conn, f func(fd uintptr)) error {
	if attest.Control(c, f) {
		return nil
	}
	inner, ok := c.(syscall.Conn)
	if !ok {
		return ErrUnreadUnknown
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return fmt.Errorf("using the descriptor of a connection: %w", err)
	}
	return raw.Control(f)
}

// waiting returns the number of bytes in the receive buffer of the other end.
func waiting(c *net.TCPConn) (int, error) {
	local, ok1 := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return 0, ErrUnreadUnknown
	}
	d, err := openDiag()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnreadUnknown, err)
	}
	defer unix.Close(int(d))
	n, err := d.waiting(plain(remote.AddrPort()), plain(local.AddrPort()))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnreadUnknown, err)
	}
	return n, nil
}

// waiting returns the length of the receive queue of the socket src, connected to dst.
func (d diag) waiting(src, dst netip.AddrPort) (int, error) {
	msgs, err := d.ask(diagRequest(src, dst, 0, 1<<tcpEstablished))
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if m.Header.Type != unix.SOCK_DIAG_BY_FAMILY || len(m.Data) < diagMessageSize {
			continue
		}
		if _, err := ownerIn(m.Data, src, dst); err != nil {
			return 0, err
		}
		return int(binary.NativeEndian.Uint32(m.Data[56:])), nil
	}
	return 0, ErrNotFound
}
