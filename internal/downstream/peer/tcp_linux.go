package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Sizes and constants of linux/inet_diag.h. Ports and addresses are in network byte
// order, everything else in the machine's.
const (
	diagRequestSize = 56 // struct inet_diag_req_v2
	diagMessageSize = 72 // struct inet_diag_msg
	tcpEstablished  = 1
	tcpListen       = 10
)

// OwnerOfTCP returns the uid that owns the far end of a loopback connection, from the
// kernel's table (NETLINK_SOCK_DIAG). local and remote are the addresses of the accepted
// connection; the socket in question is the client's, whose source is remote. Call it
// right after accept: while the accepted end is open, no other connection can have these
// addresses and ports, but the client may close its descriptor or pass it on.
//
// The answer is observed: it may refuse a caller, never admit one. ErrNotFound: there is
// no such socket, it is not established, or no process holds it. ErrUnavailable: this
// system does not report owners, for any socket. Any other error must be treated as a
// refusal: it is temporary, and a caller can cause it, for instance by using up
// descriptors.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) {
	src, dst := plain(remote), plain(local)
	if !src.IsValid() || !dst.IsValid() || src.Addr().Is4() != dst.Addr().Is4() {
		return 0, fmt.Errorf("asking for the owner of a TCP socket: bad pair %v %v: %w", src, dst, ErrNotFound)
	}
	d, err := openDiag()
	if err != nil {
		return 0, err
	}
	defer unix.Close(int(d))
	uid, err := d.owner(src, dst)
	if errors.Is(err, unix.ENOENT) {
		return 0, d.absent(src)
	}
	if err != nil {
		return 0, err
	}
	return uid, attest.UsableUID(uid)
}

// plain drops what netlink does not carry: the IPv4-mapped form and the zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// diag is a netlink socket.
type diag int

func openDiag() (diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1, fmt.Errorf("opening NETLINK_SOCK_DIAG: %w", diagError(err))
	}
	// The kernel answers before sendto returns; the timeout is for a kernel
	// that does not answer at all.
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
	return diag(fd), nil
}

// owner returns the uid that owns a socket.
func (d diag) owner(src, dst netip.AddrPort) (uint32, error) {
	b, err := d.socket(src, dst)
	if err != nil {
		return 0, err
	}
	return ownerIn(b, src, dst)
}

// inode returns the inode number of a socket, by which the descriptors in /proc name it.
// The socket may have been shut down in one direction.
func (d diag) inode(src, dst netip.AddrPort) (uint32, error) {
	b, err := d.socket(src, dst)
	if err != nil {
		return 0, err
	}
	inode := binary.NativeEndian.Uint32(b[68:])
	if !sameSocket(b, src, dst) || b[1] == tcpListen || inode == 0 {
		return 0, ErrNotFound
	}
	return inode, nil
}

// socket asks for exactly one socket. ENOENT means "no such socket" or a kernel without
// the diagnosis module.
func (d diag) socket(src, dst netip.AddrPort) (message []byte, err error) {
	msgs, err := d.ask(diagRequest(src, dst, 0, 1<<tcpEstablished))
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= diagMessageSize {
			return m.Data, nil
		}
	}
	return nil, errors.New("NETLINK_SOCK_DIAG: no answer")
}

func sameSocket(b []byte, src, dst netip.AddrPort) bool {
	return addrPort(b[0], b[4:], b[8:]) == src && addrPort(b[0], b[6:], b[24:]) == dst
}

// ownerIn parses a struct inet_diag_msg. The kernel falls back to a listening socket when
// it finds no connection, so state and addresses are compared. An inode of 0 means that
// no process holds the socket any more.
func ownerIn(b []byte, src, dst netip.AddrPort) (uint32, error) {
	state, inode := b[1], binary.NativeEndian.Uint32(b[68:])
	if !sameSocket(b, src, dst) || state != tcpEstablished || inode == 0 {
		return 0, ErrNotFound
	}
	return binary.NativeEndian.Uint32(b[64:]), nil
}

// addrPort parses one end; an IPv6 socket with an IPv4 peer has the mapped form.
func addrPort(family byte, port, addr []byte) netip.AddrPort {
	p := binary.BigEndian.Uint16(port)
	if family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr)), p)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(addr)).Unmap(), p)
}

// absent distinguishes a missing socket from a kernel without the diagnosis module: a
// dump of no states succeeds only with the module.
func (d diag) absent(src netip.AddrPort) error {
	any := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if src.Addr().Is6() {
		any = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	_, err := d.ask(diagRequest(any, any, unix.NLM_F_DUMP, 0))
	switch {
	case err == nil:
		return ErrNotFound
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("NETLINK_SOCK_DIAG: %w (%w)", ErrUnavailable, err)
	}
	return err
}

// diagRequest returns a netlink header and a struct inet_diag_req_v2.
func diagRequest(src, dst netip.AddrPort, flags uint16, states uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequestSize)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	ne.PutUint32(b[8:], 1) // sequence; the socket is used by one goroutine

	r := b[unix.NLMSG_HDRLEN:]
	r[0] = unix.AF_INET
	if src.Addr().Is6() {
		r[0] = unix.AF_INET6
	}
	r[1] = unix.IPPROTO_TCP
	ne.PutUint32(r[4:], states)
	binary.BigEndian.PutUint16(r[8:], src.Port())
	binary.BigEndian.PutUint16(r[10:], dst.Port())
	copy(r[12:28], src.Addr().AsSlice())
	copy(r[28:44], dst.Addr().AsSlice())
	ne.PutUint64(r[48:], ^uint64(0)) // cookie: any
	return b
}

// diagRoom is the size of the buffer for the answer about one socket: a struct
// inet_diag_msg and its attributes have less than 300 bytes.
const diagRoom = 1024

// ask sends one request and reads one datagram. An error message of the kernel becomes an
// error, and a message that does not fit into diagRoom is left out.
func (d diag) ask(req []byte) ([]netlinkMessage, error) {
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(int(d), req, 0, kernel); err != nil {
		return nil, fmt.Errorf("asking NETLINK_SOCK_DIAG: %w", diagError(err))
	}
	buf := make([]byte, diagRoom)
	n, from, err := unix.Recvfrom(int(d), buf, unix.MSG_TRUNC)
	for err == unix.EINTR {
		n, from, err = unix.Recvfrom(int(d), buf, unix.MSG_TRUNC)
	}
	if err != nil {
		return nil, fmt.Errorf("reading NETLINK_SOCK_DIAG: %w", err)
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return nil, errors.New("reading NETLINK_SOCK_DIAG: an answer that is not from the kernel")
	}
	return parseNetlink(buf[:min(n, len(buf))])
}

type netlinkMessage struct {
	Header unix.NlMsghdr
	Data   []byte
}

// parseNetlink splits a datagram into messages. NLMSG_ERROR and a failed NLMSG_DONE
// become the error of their number.
func parseNetlink(b []byte) ([]netlinkMessage, error) {
	var msgs []netlinkMessage
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		h := unix.NlMsghdr{Len: ne.Uint32(b), Type: ne.Uint16(b[4:])}
		if h.Len < unix.NLMSG_HDRLEN || int(h.Len) > len(b) {
			break
		}
		data := b[unix.NLMSG_HDRLEN:h.Len]
		if (h.Type == unix.NLMSG_ERROR || h.Type == unix.NLMSG_DONE) && len(data) >= 4 {
			if code := int32(ne.Uint32(data)); code != 0 {
				return nil, diagError(unix.Errno(-code))
			}
		}
		msgs = append(msgs, netlinkMessage{h, data})
		b = b[min(len(b), int(h.Len+3)&^3):]
	}
	return msgs, nil
}

// diagError wraps the errors that mean that this system never reports owners: no such
// family (systemd's RestrictAddressFamilies), not permitted, or no such call. Every other
// error is returned as it is.
func diagError(err error) error {
	for _, lasting := range []unix.Errno{unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT,
		unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EOPNOTSUPP, unix.EINVAL} {
		if errors.Is(err, lasting) {
			return fmt.Errorf("%w (%w)", ErrUnavailable, err)
		}
	}
	return err
}
