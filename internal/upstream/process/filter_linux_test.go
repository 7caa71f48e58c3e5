package process

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The filter of strict decides every system call, family, type and protocol as it should. The kernel is asked, and no
// call is made: an older filter refuses calls that carry a mark, with an error of its own, and of two refusals the
// newer filter's counts.
func TestFilterDecidesEveryCall(t *testing.T) {
	t.Parallel()
	if auditArch == 0 {
		t.Skip("there is no filter for this processor")
	}
	for _, r := range []string{"open", "ports", "ports with names"} {
		out, err := exec.Command(self(), "as-filtered", r).CombinedOutput()
		t.Logf("%s: %s", r, out)
		if err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
}

// The filter of contain decides every call too, with and without namespaces inside.
func TestFilterOfContainDecidesEveryCall(t *testing.T) {
	t.Parallel()
	if auditArch == 0 {
		t.Skip("there is no filter for this processor")
	}
	for _, nested := range []string{"", "nested"} {
		out, err := exec.Command(self(), "as-filtered-contained", nested).CombinedOutput()
		t.Logf("%s: %s", nested, out)
		if err != nil {
			t.Errorf("%s: %v", nested, err)
		}
	}
}

const (
	mark    = 0x646f6f72      // in the sixth argument, which none of these calls looks at
	allowed = unix.EBADE      // what the older filter says
	refused = unix.EXFULL     // what the newer one says where nothing else is written
	garbage = uint64(7) << 40 // above what the kernel takes of an int
)

// markFilter refuses what carries the mark.
func markFilter() program {
	var p program
	p.loadArg(5)
	p.equal(mark, answerErrno(allowed))
	p.answer(answerAllow)
	return p
}

// asFiltered compares what the kernel says with what it should say.
func asFiltered(args []string) int {
	runtime.LockOSThread()
	r := map[string]rules{
		"open": {udp: true, open: true}, "ports": {}, "ports with names": {udp: true},
	}[args[0]]
	r.deny = answerErrno(refused)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		log.Print(err)
		return 1
	}
	for _, p := range []program{markFilter(), assemble(r)} {
		if err := install(p); err != nil {
			log.Print(err)
			return 1
		}
	}
	c := &comparison{}
	c.calls()
	c.sockets(r)
	c.arguments(r)
	fmt.Printf("%d questions, %d wrong, %d instructions\n", c.asked, c.wrong, len(assemble(r)))
	return min(c.wrong, 1)
}

// asFilteredContained compares what the kernel says under the filter of contain with what it should say.
func asFilteredContained(args []string) int {
	runtime.LockOSThread()
	nested := args[0] == "nested"
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		log.Print(err)
		return 1
	}
	for _, p := range []program{markFilter(), assembleContain(nested)} {
		if err := install(p); err != nil {
			log.Print(err)
			return 1
		}
	}
	c := &comparison{}
	c.containedCalls(nested)
	c.containedArguments(nested)
	fmt.Printf("%d questions, %d wrong\n", c.asked, c.wrong)
	return min(c.wrong, 1)
}

// containedCalls: every number, with arguments that mean nothing.
func (c *comparison) containedCalls(nested bool) {
	special := []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR}
	for nr := uint32(0); nr < 1200; nr++ {
		left := slices.Contains(allowedContained, nr) || nested && slices.Contains(forNamespaces, nr)
		switch {
		case nr == 335 || nr == 336: // uretprobe and uprobe: the kernel asks no filter about them
			continue
		case nr == unix.SYS_CLONE3 && !nested, nr >= afterLast:
			c.expect(unix.ENOSYS, uintptr(nr))
		case slices.Contains(denied, nr) && !left:
			c.expect(unix.EPERM, uintptr(nr))
		case !slices.Contains(special, nr):
			c.expect(allowed, uintptr(nr))
		}
		c.expect(unix.ENOSYS, uintptr(nr|0x40000000)) // x32
	}
}

// containedArguments: calls that are refused for what they ask.
func (c *comparison) containedArguments(nested bool) {
	for bit := range 32 {
		want, unshared := allowed, allowed
		if !nested && slices.Contains([]int{17, 25, 26, 27, 28, 29, 30}, bit) {
			want, unshared = unix.EPERM, unix.EPERM
		}
		if !nested && bit == 7 { // CLONE_NEWTIME, which is part of the signal for clone
			unshared = unix.EPERM
		}
		c.expect(want, unix.SYS_CLONE, 1<<bit|uint64(unix.SIGCHLD))
		c.expect(unshared, unix.SYS_UNSHARE, 1<<bit)
	}
	c.containedSockets()
	c.limits(unix.EPERM)
	for request, want := range map[uint64]unix.Errno{unix.TIOCSTI: unix.EPERM, unix.TIOCSTI | garbage: unix.EPERM, unix.TIOCLINUX: unix.EPERM,
		unix.TCGETS: allowed} {
		c.expect(want, unix.SYS_IOCTL, 0, request)
	}
}

// containedSockets: every family and protocol. Of netlink those that belong to the host are refused.
func (c *comparison) containedSockets() {
	for family := range uint64(64) {
		for protocol := range uint64(320) {
			want := unix.EAFNOSUPPORT
			switch {
			case family == unix.AF_NETLINK && !slices.Contains([]uint64{0, 4, 15, 16}, protocol):
				want = unix.EPROTONOSUPPORT
			case slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, family):
				want = allowed
			}
			c.expect(want, unix.SYS_SOCKET, family|garbage, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol|garbage)
			c.expect(want, unix.SYS_SOCKETPAIR, family, unix.SOCK_DGRAM, protocol)
		}
	}
}

type comparison struct{ asked, wrong int }

func (c *comparison) expect(want unix.Errno, nr uintptr, args ...uint64) {
	var a [5]uintptr
	for i, v := range args {
		a[i] = uintptr(v)
	}
	_, _, got := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], mark)
	c.asked++
	if got != want {
		if c.wrong++; c.wrong < 30 {
			log.Printf("call %d %#x: %s, want %s", nr, args, unix.ErrnoName(got), unix.ErrnoName(want))
		}
	}
}

// calls: every number, with arguments that mean nothing.
func (c *comparison) calls() {
	special := []uint32{unix.SYS_CLONE, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR}
	for nr := uint32(0); nr < 1200; nr++ {
		if nr == 335 || nr == 336 {
			continue // uretprobe and uprobe: the kernel asks no filter about them, and they only work from its own code
		}
		switch {
		case slices.Contains(denied, nr):
			c.expect(refused, uintptr(nr))
		case nr == unix.SYS_CLONE3, nr >= afterLast:
			c.expect(unix.ENOSYS, uintptr(nr))
		case !slices.Contains(special, nr):
			c.expect(allowed, uintptr(nr))
		}
		c.expect(unix.ENOSYS, uintptr(nr|0x40000000)) // x32
	}
}

// sockets: every family, type and protocol.
func (c *comparison) sockets(r rules) {
	for family := range uint64(64) {
		for kind := range uint64(16) {
			for protocol := range uint64(320) {
				want := socketVerdict(r, family, kind, protocol)
				c.expect(want, unix.SYS_SOCKET, family, kind, protocol)
				c.expect(want, unix.SYS_SOCKETPAIR, family|garbage, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK|garbage, protocol|garbage)
			}
		}
	}
}

func socketVerdict(r rules, family, kind, protocol uint64) unix.Errno {
	switch {
	case family == unix.AF_UNIX:
		return allowed
	case family != unix.AF_INET && family != unix.AF_INET6:
		return unix.EAFNOSUPPORT
	case kind == unix.SOCK_STREAM && (protocol == 0 || protocol == 6):
		return allowed
	case kind == unix.SOCK_STREAM:
		return unix.EPROTONOSUPPORT
	case kind != unix.SOCK_DGRAM || !r.udp:
		return unix.ESOCKTNOSUPPORT
	case protocol == 0 || protocol == 17 || r.open && (protocol == 1 || protocol == 58):
		return allowed
	}
	return unix.EPROTONOSUPPORT
}

// arguments: calls that are refused for what they ask.
func (c *comparison) arguments(r rules) {
	for bit := range 32 {
		want := allowed
		if slices.Contains([]int{17, 25, 26, 27, 28, 29, 30}, bit) {
			want = refused
		}
		c.expect(want, unix.SYS_CLONE, 1<<bit|uint64(unix.SIGCHLD))
	}
	c.limits(refused)
	for request, want := range map[uint64]unix.Errno{unix.TIOCSTI: refused, unix.TIOCSTI | garbage: refused, unix.TIOCLINUX: refused,
		unix.TCGETS: allowed, unix.TIOCGWINSZ: allowed} {
		c.expect(want, unix.SYS_IOCTL, 0, request)
	}
	for level := range uint64(300) {
		for option := range uint64(64) {
			want := allowed
			if level == unix.IPPROTO_TCP && option == 31 {
				want = unix.ENOPROTOOPT
			}
			c.expect(want, unix.SYS_SETSOCKOPT, 0, level|garbage, option|garbage)
		}
	}
	early := allowed
	if !r.open {
		early = unix.EOPNOTSUPP
	}
	for nr, arg := range map[uintptr]int{unix.SYS_SENDTO: 3, unix.SYS_SENDMSG: 2, unix.SYS_SENDMMSG: 3} {
		args := make([]uint64, 5)
		c.expect(allowed, nr, args...)
		args[arg] = unix.MSG_FASTOPEN | unix.MSG_NOSIGNAL | garbage
		c.expect(early, nr, args...)
	}
}

// limits: a process may change its own limits, and those of no other, under no number.
func (c *comparison) limits(deny unix.Errno) {
	c.expect(allowed, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE)
	c.expect(allowed, unix.SYS_PRLIMIT64, garbage, unix.RLIMIT_NOFILE)
	for bit := range 32 {
		c.expect(deny, unix.SYS_PRLIMIT64, 1<<bit, unix.RLIMIT_NOFILE)
	}
	for pid := uint64(1); pid < 200; pid++ {
		c.expect(deny, unix.SYS_PRLIMIT64, pid|garbage, unix.RLIMIT_NOFILE)
	}
}

// A program of another architecture, which has other numbers of calls, is killed at its first call.
func TestFilterKnowsItsArchitecture(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the test's program is for the 386")
	}
	dir := must(os.MkdirTemp("/var/tmp", "doorward"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "exit7")
	syscall.ForkLock.RLock() // or a process that starts meanwhile holds it open for writing
	err := os.WriteFile(program, exit7(), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(program).Run(); statusOf(err) != 7 {
		t.Skipf("this kernel runs no programs of the 386: %v", err)
	}
	s := newStage(t, Options{})
	for mode, want := range map[string]string{Off: "exit status 7", Contain: "exit status 159 (signal 31)", Strict: "exit status 159 (signal 31)"} {
		s.mode = mode
		p := s.start(Spec{Path: program})
		<-p.Done()
		if got := statusText(p.Err()); got != want {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
	}
}

func statusOf(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.Sys().(syscall.WaitStatus).ExitStatus()
	}
	return 0
}

// exit7 is a program for the 386 in the 86 bytes of a header and one that make exit(7).
func exit7() []byte {
	const base = 0x08048000
	code := []byte{0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80}
	var b []byte
	half := func(v ...uint16) {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8))
		}
	}
	word := func(v ...uint32) {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
	}
	b = append(b, 0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	half(2, 3)
	word(1, base+84, 52, 0, 0)
	half(52, 32, 1, 40, 0, 0)
	size := uint32(84 + len(code))
	word(1, 0, base, base, size, size, 5, 0x1000)
	return append(b, code...)
}
