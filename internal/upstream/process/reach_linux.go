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

// grabbed is a file or directory of the host that is held by a descriptor, so that it stays the one that was checked
// even if its path changes.
type grabbed struct {
	path string // with all links followed
	fd   int
	dir  bool
	mode uint32
}

// grab opens a path only to be mounted.
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
		err = unix.ENOENT // it cannot be reached from this root
	}
	if err != nil {
		_ = unix.Close(fd)
		return grabbed{}, err
	}
	return grabbed{path: string(buf[:n]), fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, mode: st.Mode}, nil
}

// errLeadsOut is returned for a path that leads out of a directory in which contained servers write.
var errLeadsOut = errors.New("a link in a directory that servers write leads out of it; write the path that it leads to")

// mostLinks is the number of symbolic links that the kernel follows for one path (path_resolution(7)).
const mostLinks = 40

// reach opens paths that the configuration names. A server could put a link in the place of a path that it may write;
// at its next start, or through another server, it would then be granted the link's target.
//
// Invariant: if the way to an opened file, including the links on it, passes a directory in writable, the file lies
// in that directory.
type reach struct {
	writable []string
	asks     *patience
}

// way is the result of following a path.
type way struct {
	at    string            // with all links followed
	out   bool              // it leaves a writable directory that it passes
	links map[string]string // the symbolic links on it
}

// newReach takes the directories that contained servers write, both as they are named and with links followed. A link
// that makes a wrong entry adds a rule and removes none.
func newReach(paths []string, asks *patience) reach {
	r := reach{asks: asks}
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			continue
		}
		r.writable = append(r.writable, filepath.Clean(path))
		asks.ask(path)
		if held, err := grab(path); err == nil {
			r.writable = append(r.writable, held.path)
			_ = unix.Close(held.fd)
		}
	}
	return r
}

// grab opens a path. The error is errLeadsOut for one that leads out of a writable directory; the way is set then
// too.
func (r reach) grab(path string) (grabbed, way, error) {
	r.asks.ask(path)
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
		if err != nil { // not a link
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

// entered returns the writable directories that contain a path.
func (r reach) entered(path string) []string {
	return slices.DeleteFunc(slices.Clone(r.writable), func(dir string) bool { return !within(path, dir) })
}

// within reports whether path is dir or lies in it.
func within(path, dir string) bool { return path == dir || below(path, dir) }
