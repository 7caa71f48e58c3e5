package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// grabbed is something on the host that is held by a descriptor, so that it is what was looked at whatever its path leads to
// later.
type grabbed struct {
	path string // with all links followed
	fd   int
	dir  bool
	mode uint32
}

// grab opens a path for nothing but being mounted.
func grab(path string) (grabbed, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return grabbed{}, err
	}
	var st unix.Stat_t
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(fdPath(fd), buf)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && !filepath.IsAbs(string(buf[:n])) {
		err = unix.ENOENT // it is not below this root
	}
	if err != nil {
		_ = unix.Close(fd)
		return grabbed{}, err
	}
	return grabbed{path: string(buf[:n]), fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, mode: st.Mode}, nil
}

// errLeadsOut is returned for a path that leads out of a directory in which contained servers write.
var errLeadsOut = errors.New("a link in a directory that servers write leads out of it; name the path that it leads to")

// mostLinks is how many symbolic links the kernel follows for one path (path_resolution(7)).
const mostLinks = 40

// reach opens what the configuration names. A server can put a link in the place of a path that it may write, and would be
// granted at its next start, or have another server granted, whatever the link leads to.
//
// Its invariant: what is opened lies in every directory of writable that the way to it, or a link on that way, passes.
type reach struct{ writable []string }

// way is where a path leads.
type way struct {
	at    string            // with all links followed
	out   bool              // of a writable directory that it passes
	links map[string]string // the symbolic links on it
}

// newReach takes the directories that some contained server writes, as they are named and as they resolve now. A link that
// makes a wrong entry adds a rule and removes none.
func newReach(paths []string) reach {
	var r reach
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			continue
		}
		r.writable = append(r.writable, filepath.Clean(path))
		if held, err := grab(path); err == nil {
			r.writable = append(r.writable, held.path)
			_ = unix.Close(held.fd)
		}
	}
	return r
}

// grab opens a path. The error is errLeadsOut for one that leads out; the way is set then too.
func (r reach) grab(path string) (grabbed, way, error) {
	w, err := r.walk(path)
	if err == nil && w.out {
		err = errLeadsOut
	}
	if err != nil {
		return grabbed{}, w, err
	}
	held, err := grab(w.at)
	if err == nil && held.path != w.at {
		_ = unix.Close(held.fd)
		err = fmt.Errorf("%s changed while it was opened", path)
	}
	return held, w, err
}

// walk follows a path component by component.
func (r reach) walk(path string) (way, error) {
	w := way{at: "/", links: map[string]string{}}
	var passed []string
	links := 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		next := filepath.Join(w.at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil { // no link
			w.at = next
			passed = append(passed, r.entered(next)...)
			continue
		}
		if links++; links > mostLinks {
			return w, unix.ELOOP
		}
		w.links[next] = target
		if filepath.IsAbs(target) {
			w.at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	w.out = slices.ContainsFunc(passed, func(dir string) bool { return !within(w.at, dir) })
	return w, nil
}

// entered are the writable directories that a path lies in.
func (r reach) entered(path string) []string {
	return slices.DeleteFunc(slices.Clone(r.writable), func(dir string) bool { return !within(path, dir) })
}

// within tells whether path is dir or lies in it.
func within(path, dir string) bool { return path == dir || below(path, dir) }
