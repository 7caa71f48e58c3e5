package attest

// Reading with credentials. Invariant: a byte that Read returns was written by the process
// and uid of the credentials, and that process was alive after the read; no descriptor that
// a peer passed stays open.

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxPassed is the largest number of descriptors in one message (SCM_MAX_FD).
const maxPassed = 253

// controlWords is the size of a buffer for one credential, one pidfd and maxPassed
// descriptors. It is counted in words for alignment: each part is a header of two words and
// its padded data.
const controlWords = (2 + 2) + (2 + 1) + (2 + (4*maxPassed+7)/8)

// arm prepares what every read uses, so that a read does not allocate. If the connection
// has no descriptor, it is closed and Read fails.
func (g *guard) arm() {
	g.raw, _ = g.c.SyscallConn()
	g.receive = g.receiveOn
}

// Read receives one message and checks its writer.
func (g *guard) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.raw == nil {
		return 0, net.ErrClosed
	}
	if g.broken.Load() {
		return 0, ErrBreach
	}
	g.into, g.got = p, received{}
	err := g.raw.Read(g.receive)
	g.into = nil
	switch {
	case err != nil:
		return 0, asRead(err)
	case g.got.errno != 0:
		return 0, g.failed(g.got.errno)
	case g.got.breach != "":
		return 0, g.end(g.got.breach)
	case g.got.n == 0:
		return 0, io.EOF
	}
	return g.living(g.got.n)
}

// living is the last check: after the process has ended, its pid may have been reused by
// the writer of these bytes.
func (g *guard) living(n int) (int, error) {
	switch g.creds.process.state() {
	case running:
		return n, nil
	case letGo:
		return 0, net.ErrClosed
	}
	return 0, g.end(BreachDead)
}

// asRead gives an error of the poller the operation name "read".
func asRead(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		op.Op = "read"
	}
	return err
}

func (g *guard) failed(errno syscall.Errno) error {
	return &net.OpError{Op: "read", Net: "unix", Source: g.c.LocalAddr(), Addr: g.c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", errno)}
}

// receiveOn reads once; false means that there is no data yet.
func (g *guard) receiveOn(fd uintptr) bool {
	var control [controlWords]uint64
	iov := unix.Iovec{Base: &g.into[0]}
	iov.SetLen(len(g.into))
	msg := unix.Msghdr{Iov: &iov, Control: (*byte)(unsafe.Pointer(&control))}
	msg.SetIovlen(1)
	msg.SetControllen(8 * controlWords)
	n, errno := receiveMessage(fd, &msg)
	if errno == unix.EAGAIN {
		return false
	}
	if g.got.errno = errno; errno == 0 {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&control)), int(msg.Controllen))
		g.got.n, g.got.breach = n, g.creds.judge(n, int(msg.Flags), b)
	}
	return true
}

func receiveMessage(fd uintptr, msg *unix.Msghdr) (int, syscall.Errno) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(msg)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// judge closes the descriptors in the control data and returns the breach of a read, if
// any. The end of the stream has no writer and needs no credentials.
func (c *Credentials) judge(n, flags int, control []byte) (breach string) {
	pid, uid, attested, passed := readControl(control)
	switch {
	case flags&unix.MSG_CTRUNC != 0:
		return BreachTruncated
	case passed > 0:
		return BreachDescriptors
	case n == 0:
		return ""
	case !attested:
		return BreachUnattested
	case pid != c.PID || uid != c.UID:
		return BreachWriter
	}
	return ""
}

// readControl parses control data and closes every descriptor in it. passed counts the
// descriptors that the peer sent.
func readControl(b []byte) (pid int32, uid uint32, attested bool, passed int) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return pid, uid, false, passed
		}
		b = rest
		switch {
		case h.Level != unix.SOL_SOCKET:
		case h.Type == unix.SCM_CREDENTIALS && len(data) >= unix.SizeofUcred:
			pid, uid = int32(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint32(data[4:])
			attested = true
		case h.Type == unix.SCM_RIGHTS:
			passed += closeAll(data)
		case h.Type == unix.SCM_PIDFD:
			closeAll(data)
		}
	}
	return pid, uid, attested, passed
}

func closeAll(data []byte) (n int) {
	for ; len(data) >= 4; data = data[4:] {
		unix.Close(int(int32(binary.NativeEndian.Uint32(data))))
		n++
	}
	return n
}
