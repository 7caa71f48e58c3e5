package peer

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Gone reports whether the process instance of that name ("BOOT/PID@START", as returned
// by Ancestors) has ended: the system was restarted, its number is free or reused, or it
// has exited and waits to be reaped. A process whose first thread has exited has not
// ended while another thread runs.
//
// It returns false where that cannot be determined: a name of another form, a /proc of
// another pid namespace, a hidden process, a number reused within the resolution of start
// times (10 ms). True may therefore be used to end something; false does not prove that
// the process lives.
func Gone(instance string) bool {
	boot, pid, start, ok := parseInstance(instance)
	if !ok || !isBoot(attest.BootID()) || !ownProc() {
		return false
	}
	return boot != attest.BootID() || goneHere(pid, start, unix.PidfdOpen)
}

// goneHere checks a process of this boot. open is pidfd_open, except in tests.
//
// The handle is opened first: a start time that is read later belongs to the process of
// the handle as long as that process lives, which the handle confirms afterwards.
func goneHere(pid int32, start uint64, open func(pid, flags int) (int, error)) bool {
	fd, err := open(int(pid), 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return true
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // the number belongs to a thread
		return true
	case err != nil:
		return goneByProc(pid, start)
	}
	defer unix.Close(fd)
	if r, seen := look(pid); seen && r.start != start {
		return true
	}
	return attest.Exited(fd)
}

// goneByProc is the check without a pidfd: on a kernel before 5.3, or when no descriptor
// is left. A process that /proc hides is checked by signal 0. A process that waits to be
// reaped counts as not gone.
func goneByProc(pid int32, start uint64) bool {
	if r, seen := look(pid); seen {
		return r.start != start
	}
	return errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
}

// Above returns the processes above this one, nearest first, up to the first of this pid
// namespace. With ErrLineage it returns the part that could be seen.
func Above() ([]Process, error) {
	if !ownProc() {
		return nil, ErrLineage
	}
	names := make(map[int32]string)
	see := func(pid int32) (relative, bool) {
		r, ok := look(pid)
		names[pid] = word(r.name)
		return r, ok
	}
	for range 5 {
		chain, ok := ascend(int32(os.Getpid()), see)
		if len(chain) == 0 || !unchanged(chain, see) {
			continue
		}
		above := make([]Process, len(chain)-1)
		for i, l := range chain[1:] {
			above[i] = Process{attest.Instance(l.pid, l.start), names[l.pid]}
		}
		if !ok {
			return above, ErrLineage
		}
		return above, nil
	}
	return nil, ErrLineage
}

// parseInstance splits the name of a process instance. It accepts only the spelling that
// attest.Instance writes, so that one process has one name.
func parseInstance(s string) (boot string, pid int32, start uint64, ok bool) {
	boot, rest, cut1 := strings.Cut(s, "/")
	number, ticks, cut2 := strings.Cut(rest, "@")
	n, err1 := strconv.ParseInt(number, 10, 32)
	start, err2 := strconv.ParseUint(ticks, 10, 64)
	ok = cut1 && cut2 && err1 == nil && err2 == nil && n > 0 && isBoot(boot) &&
		strconv.FormatInt(n, 10) == number && strconv.FormatUint(start, 10) == ticks
	return boot, int32(n), start, ok
}

// isBoot reports whether s has the form of a boot id. The placeholder for an unreadable
// boot id does not have this form, so it identifies no boot.
func isBoot(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}
