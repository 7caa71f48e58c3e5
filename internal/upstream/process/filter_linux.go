package process

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A seccomp filter is a program for the kernel's classic BPF machine. This one consists of two shapes whose jumps
// cannot go wrong: a test that answers or continues, and a block for one value, which begins with a test for that
// value and ends with an answer. Tests run it in the kernel against every call, family and protocol.

// Offsets in struct seccomp_data, on little-endian machines.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// The return values of a filter.
const (
	answerAllow = unix.SECCOMP_RET_ALLOW
	answerKill  = unix.SECCOMP_RET_KILL_PROCESS
)

func answerErrno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// program is a filter that is being assembled.
type program []unix.SockFilter

func (p *program) emit(code uint16, jt, jf uint8, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (p *program) load(offset uint32)   { p.emit(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset) }
func (p *program) loadArg(n uint32)     { p.load(dataArgs + 8*n) } // its lower half: the kernel takes these as int
func (p *program) mask(bits uint32)     { p.emit(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, bits) }
func (p *program) answer(action uint32) { p.emit(unix.BPF_RET|unix.BPF_K, 0, 0, action) }

// The following answer if the loaded value passes the test, and otherwise continue.

func (p *program) equal(k, action uint32)   { p.test(unix.BPF_JEQ, k, action) }
func (p *program) atLeast(k, action uint32) { p.test(unix.BPF_JGE, k, action) }
func (p *program) anyBit(k, action uint32)  { p.test(unix.BPF_JSET, k, action) }

func (p *program) test(how uint16, k, action uint32) {
	p.emit(unix.BPF_JMP|how|unix.BPF_K, 0, 1, k)
	p.answer(action)
}

// only answers if the loaded value is none of ks.
func (p *program) only(action uint32, ks ...uint32) {
	for i, k := range ks {
		p.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint8(len(ks)-i), 0, k)
	}
	p.answer(action)
}

// when runs block if the loaded value equals k. The result of block is the answer at its end.
// Another value jumps over the block, which may be longer than the 255 instructions that a
// conditional jump can pass.
func (p *program) when(k uint32, block func(*program) uint32) {
	var b program
	b.answer(block(&b))
	p.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, k)
	p.emit(unix.BPF_JMP|unix.BPF_JA, 0, 0, uint32(len(b)))
	*p = append(*p, b...)
}

// rules holds the parts in which filters differ.
type rules struct {
	deny uint32 // answer to a refused call
	udp  bool   // datagrams may be sent
	open bool   // TCP connections are not limited to ports
}

// namespaceFlags are the flags of clone that make namespaces. CLONE_NEWTIME is not among them: clone has its signal
// in these bits and cannot make a time namespace.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// assemble makes the filter of strict.
func assemble(r rules) program {
	var p program
	p.load(dataArch)
	p.only(answerKill, auditArch)
	p.load(dataNumber)
	p.atLeast(afterLast, answerErrno(unix.ENOSYS)) // newer calls than the list, and those of x32
	p.equal(unix.SYS_CLONE3, answerErrno(unix.ENOSYS))
	for _, nr := range denied {
		p.equal(nr, r.deny)
	}
	p.when(unix.SYS_CLONE, func(b *program) uint32 {
		b.loadArg(0)
		b.anyBit(namespaceFlags, r.deny)
		return answerAllow
	})
	p.when(unix.SYS_SOCKET, r.socket)
	p.when(unix.SYS_SOCKETPAIR, r.socket)
	p.when(unix.SYS_IOCTL, func(b *program) uint32 {
		b.loadArg(1)
		b.equal(unix.TIOCSTI, r.deny) // types into a terminal
		b.equal(unix.TIOCLINUX, r.deny)
		return answerAllow
	})
	p.when(unix.SYS_SETSOCKOPT, r.option)
	p.when(unix.SYS_PRLIMIT64, ownLimits(r.deny))
	if !r.open {
		// Landlock does not check data that is sent while a connection is opened.
		p.when(unix.SYS_SENDTO, noFastOpen(3))
		p.when(unix.SYS_SENDMSG, noFastOpen(2))
		p.when(unix.SYS_SENDMMSG, noFastOpen(3))
	}
	p.answer(answerAllow)
	return p
}

func noFastOpen(flags uint32) func(*program) uint32 {
	return func(b *program) uint32 {
		b.loadArg(flags)
		b.anyBit(unix.MSG_FASTOPEN, answerErrno(unix.EOPNOTSUPP))
		return answerAllow
	}
}

// socket allows local sockets, TCP, UDP and ping. Multipath TCP, SCTP and SMC are refused, because Landlock does not
// treat their connections as TCP.
func (r rules) socket(b *program) uint32 {
	b.loadArg(0)
	b.equal(unix.AF_UNIX, answerAllow)
	b.only(answerErrno(unix.EAFNOSUPPORT), unix.AF_INET, unix.AF_INET6)
	b.loadArg(1)
	b.mask(0xf) // the rest is SOCK_CLOEXEC and SOCK_NONBLOCK
	if r.udp {
		b.when(unix.SOCK_DGRAM, func(b *program) uint32 {
			b.loadArg(2)
			b.only(answerErrno(unix.EPROTONOSUPPORT), r.datagrams()...)
			return answerAllow
		})
	}
	b.only(answerErrno(unix.ESOCKTNOSUPPORT), unix.SOCK_STREAM)
	b.loadArg(2)
	b.only(answerErrno(unix.EPROTONOSUPPORT), 0, unix.IPPROTO_TCP)
	return answerAllow
}

func (r rules) datagrams() []uint32 {
	if r.open {
		return []uint32{0, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}
	}
	return []uint32{0, unix.IPPROTO_UDP}
}

// option refuses to put another protocol on top of an existing TCP connection.
func (r rules) option(b *program) uint32 {
	const upperProtocol = 31 // TCP_ULP
	b.loadArg(1)
	b.when(unix.IPPROTO_TCP, func(b *program) uint32 {
		b.loadArg(2)
		b.equal(upperProtocol, answerErrno(unix.ENOPROTOOPT))
		return answerAllow
	})
	return answerAllow
}

// assembleContain makes the filter of contain: it refuses the calls that strict refuses, except those on a server's
// own processes. Nested namespaces, and mounts in them, are allowed to a server with that grant.
func assembleContain(nested bool) program {
	var p program
	deny := answerErrno(unix.EPERM)
	p.load(dataArch)
	p.only(answerKill, auditArch)
	p.load(dataNumber)
	p.atLeast(afterLast, answerErrno(unix.ENOSYS))
	if !nested {
		p.equal(unix.SYS_CLONE3, answerErrno(unix.ENOSYS)) // a filter cannot read its flags; libraries fall back to clone
	}
	for _, nr := range deniedContained(nested) {
		p.equal(nr, deny)
	}
	if !nested {
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			p.when(nr, func(b *program) uint32 {
				b.loadArg(0)
				b.anyBit(namespaceFlags, deny)
				if nr == unix.SYS_UNSHARE {
					b.anyBit(unix.CLONE_NEWTIME, deny)
				}
				return answerAllow
			})
		}
	}
	p.when(unix.SYS_SOCKET, containedSocket)
	p.when(unix.SYS_SOCKETPAIR, containedSocket)
	p.when(unix.SYS_IOCTL, func(b *program) uint32 {
		b.loadArg(1)
		b.equal(unix.TIOCSTI, deny) // types into a terminal
		b.equal(unix.TIOCLINUX, deny)
		return answerAllow
	})
	p.when(unix.SYS_PRLIMIT64, ownLimits(deny))
	p.answer(answerAllow)
	return p
}

// ownLimits allows a process to read and set only its own limits, with pid 0. The process that watches a server has
// the server's uid, so the kernel would let the server lower its limit of descriptors (prlimit(2)).
func ownLimits(deny uint32) func(*program) uint32 {
	return func(b *program) uint32 {
		b.loadArg(0)
		b.only(deny, 0)
		return answerAllow
	}
}

// netlinks lists the protocols of netlink that programs use: network interfaces, sockets, devices, and generic netlink.
// Others belong to the host: the connector tells the start, the name and the end of each of its processes.
var netlinks = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_KOBJECT_UEVENT, unix.NETLINK_GENERIC}

// containedSocket allows the families that programs use: others, such as those of virtual machines, reach beyond the
// namespaces.
func containedSocket(b *program) uint32 {
	b.loadArg(0)
	b.when(unix.AF_NETLINK, func(b *program) uint32 {
		b.loadArg(2)
		b.only(answerErrno(unix.EPROTONOSUPPORT), netlinks...)
		return answerAllow
	})
	b.only(answerErrno(unix.EAFNOSUPPORT), unix.AF_UNIX, unix.AF_INET, unix.AF_INET6)
	return answerAllow
}

// deniedContained returns the system calls that contain refuses.
func deniedContained(nested bool) []uint32 {
	allowed := slices.Clone(allowedContained)
	if nested {
		allowed = append(allowed, forNamespaces...)
	}
	return slices.DeleteFunc(slices.Clone(denied), func(nr uint32) bool { return slices.Contains(allowed, nr) })
}

// filter applies the filter of the mode to this thread and the processes that it starts.
func (j *jail) filter() error {
	const name = "system calls by deny-list"
	if j.plan.Mode == Contain && auditArch == 0 {
		j.note(name, Unavailable, "there is no list of system calls for this processor")
		return nil
	}
	if j.plan.Mode == Contain {
		if err := install(assembleContain(j.plan.Nested)); err != nil {
			return err
		}
		j.note(name, Enforced, "")
		return nil
	}
	if auditArch == 0 {
		return errors.New("strict has no list of system calls for this processor")
	}
	open := j.plan.Network != NetworkPorts
	r := rules{deny: answerErrno(unix.EPERM), open: open, udp: open || slices.Contains(j.plan.Ports, dns)}
	if err := install(assemble(r)); err != nil {
		return err
	}
	j.note(name, Enforced, "")
	return nil
}

// install applies a filter to this thread. It requires no_new_privs.
func install(p program) error {
	fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); err != 0 {
		return fmt.Errorf("setting the filter of system calls: %w", err)
	}
	return nil
}
