package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrOutside is wrapped by the error of OpenFolder for a path in none of the roots.
var ErrOutside = errors.New("outside of the directories that are allowed")

// OpenFolder opens a directory that lies in one of the roots, or is one, with all links followed on both sides, and
// returns its path. The open directory cannot be exchanged: a link in the path that changes later has no effect.
// Paths are absolute.
func OpenFolder(path string, roots []string) (folder *os.File, real string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", fmt.Errorf("%s is not absolute: %w", path, ErrOutside)
	}
	folder, real, err = hold(path)
	if err != nil {
		return nil, "", fmt.Errorf("opening the directory %s: %w", path, err)
	}
	for _, root := range roots {
		held, at, err := hold(root)
		if err != nil {
			continue // a root that does not exist contains nothing
		}
		held.Close()
		if real == at || below(real, at) {
			return folder, real, nil
		}
	}
	folder.Close()
	return nil, "", fmt.Errorf("%s: %w", path, ErrOutside)
}

// hold opens a directory only to be entered, and reads its path from the kernel.
func hold(path string) (*os.File, string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	f := os.NewFile(uintptr(fd), path)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil && !filepath.IsAbs(real) {
		err = errors.New("it is not reachable from the root of this process")
	}
	if err != nil {
		f.Close()
		return nil, "", err
	}
	return f, real, nil
}

// folder identifies a directory independently of its path. The zero value is unknown.
type folder struct {
	known    bool
	dev, ino uint64
}

// here identifies the working directory.
func here() folder {
	var st unix.Stat_t
	if unix.Stat(".", &st) != nil {
		return folder{}
	}
	return folder{known: true, dev: uint64(st.Dev), ino: st.Ino}
}
