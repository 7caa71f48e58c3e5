//go:build unix

package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// controlFD is the read end of the control pipe. Its end of file is the order to kill everything.
const controlFD = 3

// pipe is one pipe between daemon and child: the daemon's end is close-on-exec and non-blocking, the other one
// blocks, as programs expect of their stdio.
type pipe struct{ ours, theirs int }

type pipeSet struct {
	stdin, stdout, stderr, control, report pipe

	reports bool // there is a report pipe
}

// openPipes makes the four pipes, and a fifth for the notes of a contained server's stages. Unwanted standard error
// goes to the null device: an idle child then costs one goroutine and one pipe less, and can write there without
// limit.
func openPipes(wantStderr, reports bool) (*pipeSet, error) {
	s := &pipeSet{reports: reports}
	made := 0
	for _, p := range s.all() {
		if p == &s.stderr && !wantStderr {
			null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				s.closeFirst(made)
				return nil, fmt.Errorf("opening %s: %w", os.DevNull, err)
			}
			*p = pipe{ours: -1, theirs: null}
			made++
			continue
		}
		r, w, err := closeOnExecPipe()
		if err != nil {
			s.closeFirst(made)
			return nil, fmt.Errorf("opening a pipe: %w", err)
		}
		*p = pipe{ours: r, theirs: w}
		if p == &s.stdin || p == &s.control {
			*p = pipe{ours: w, theirs: r}
		}
		made++
		if err := unix.SetNonblock(p.ours, true); err != nil {
			s.closeFirst(made)
			return nil, fmt.Errorf("making a pipe non-blocking: %w", err)
		}
	}
	if !reports {
		shrink(s.control.ours) // only a plan needs the room
	}
	return s, nil
}

// all returns the pipes in the order of the child's descriptors, 0 to 3 or 4.
func (s *pipeSet) all() []*pipe {
	all := []*pipe{&s.stdin, &s.stdout, &s.stderr, &s.control, &s.report}
	if !s.reports {
		return all[:controlFD+1]
	}
	return all
}

func (s *pipeSet) theirs() []uintptr {
	var fds []uintptr
	for _, p := range s.all() {
		fds = append(fds, uintptr(p.theirs))
	}
	return fds
}

func (s *pipeSet) closeTheirs() {
	for _, p := range s.all() {
		_ = unix.Close(p.theirs)
	}
}

func (s *pipeSet) closeOurs() {
	for _, p := range s.all() {
		_ = unix.Close(p.ours)
	}
}

func (s *pipeSet) closeFirst(n int) {
	for _, p := range s.all()[:n] {
		_, _ = unix.Close(p.ours), unix.Close(p.theirs)
	}
}
