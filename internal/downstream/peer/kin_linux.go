package peer

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Kinship describes the processes of a chain. ErrLineage: one of them has ended or cannot
// be read.
func Kinship(chain []string) ([]Kin, error) {
	all := make([]Kin, 0, len(chain))
	for _, instance := range chain {
		boot, pid, start, ok := parseInstance(instance)
		if !ok || boot != attest.BootID() {
			return nil, fmt.Errorf("%w: %q is not a process of this boot", ErrLineage, instance)
		}
		k := Kin{Instance: instance, PID: pid, Start: start, Login: LoginOf(pid)}
		b, err := attest.ReadProc("/proc/" + strconv.Itoa(int(pid)) + "/stat")
		r, there := look(pid)
		f := attest.StatFields(b)
		if err != nil || !there || r.start != start || len(f) < 5 {
			return nil, fmt.Errorf("%w: process %d has ended", ErrLineage, pid)
		}
		leader, err1 := strconv.ParseInt(string(f[3]), 10, 32)
		terminal, err2 := strconv.ParseInt(string(f[4]), 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%w: process %d cannot be read", ErrLineage, pid)
		}
		k.Name, k.Session, k.Terminal = word(r.name), int32(leader), uint64(terminal)
		all = append(all, k)
	}
	return all, nil
}

// First returns the name of the first process of this pid namespace; empty: unknown.
func First() string {
	r, ok := look(1)
	if !ok {
		return ""
	}
	return attest.Instance(1, r.start)
}

// LoginOf returns the Login of a process by its number.
func LoginOf(pid int32) uint32 {
	b, err := attest.ReadProc("/proc/" + strconv.Itoa(int(pid)) + "/sessionid")
	if err != nil {
		return NoLogin
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return NoLogin
	}
	return uint32(n)
}

// HoldsTerminal reports whether holder has the master side of the controlling terminal
// of leader, as a terminal emulator has of the shells that it starts.
func HoldsTerminal(holder, leader Kin) bool {
	if unix.Major(leader.Terminal) != ptsMajor {
		return false
	}
	index := int(unix.Minor(leader.Terminal)) // N of /dev/pts/N
	dir := "/proc/" + strconv.Itoa(int(holder.PID))
	all, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return false
	}
	for _, fd := range all {
		if to, err := os.Readlink(dir + "/fd/" + fd.Name()); err != nil || !strings.HasSuffix(to, "/ptmx") {
			continue
		}
		info, err := os.ReadFile(dir + "/fdinfo/" + fd.Name())
		if err == nil && bytes.Contains(append(info, '\n'), []byte("tty-index:\t"+strconv.Itoa(index)+"\n")) {
			return true
		}
	}
	return false
}

// ptsMajor is the device number of pseudo-terminals (Documentation/admin-guide/devices.txt).
const ptsMajor = 136
