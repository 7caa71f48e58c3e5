//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type reader = func() ([]byte, error)

// most is the maximum number of bytes read from one file.
const most = 1 << 20

func readFile(path string) reader {
	return func() ([]byte, error) { return slurp(unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)) }
}

func slurp(fd int, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		names, err := f.Readdirnames(-1)
		return []byte(strings.Join(names, "\n")), err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// own returns a new directory that the thief may write to, or /tmp.
func own() string {
	dir, err := os.MkdirTemp("", "thief")
	if err != nil {
		return "/tmp"
	}
	return dir
}

// routes returns the routes to one path, by name.
func routes(path string) map[string]reader {
	all := map[string]reader{"path": readFile(path), "dots": readFile(strings.Repeat("../", 40) + path[1:])}
	for _, root := range roots() {
		all[root] = readFile(root + path)
		all[root+" by dots"] = readFile(root + strings.Repeat("/..", 40) + path)
	}
	dir := own()
	all["symbolic link"] = func() ([]byte, error) {
		link := dir + "/link"
		if err := os.Symlink(path, link); err != nil {
			return nil, err
		}
		return readFile(link)()
	}
	for name, flags := range map[string]int{"hard link": 0, "hard link of a link": unix.AT_SYMLINK_FOLLOW} {
		all[name] = func() ([]byte, error) {
			to := dir + "/" + strings.ReplaceAll(name, " ", "")
			if err := unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, to, flags); err != nil {
				return nil, err
			}
			return readFile(to)()
		}
	}
	all["openat2"] = func() ([]byte, error) {
		return slurp(unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY}))
	}
	all["handle"] = func() ([]byte, error) { return byHandle(path) }
	for i, part := range parents(path) {
		all[fmt.Sprintf("moved parent %d", i)] = func() ([]byte, error) { return byMoving(path, part, dir) }
	}
	all["socket"] = func() ([]byte, error) { return dial(path) }
	return all
}

// roots returns other names of the root directory: roots, working directories and descriptors of processes.
func roots() []string {
	var all []string
	for _, pattern := range []string{"/proc/[0-9]*/root", "/proc/[0-9]*/cwd", "/proc/[0-9]*/task/*/root", "/proc/[0-9]*/fd/*", "/proc/self/ns/*", "/dev/fd/*"} {
		names, _ := filepath.Glob(pattern)
		all = append(all, names...)
	}
	for fd := range 256 {
		all = append(all, "/proc/self/fd/"+strconv.Itoa(fd))
	}
	return all
}

// parents returns the directories above a path that may be changed, the nearest first.
func parents(path string) []string {
	within := os.Getenv(withinVar)
	if within == "" {
		return nil
	}
	var all []string
	for dir := filepath.Dir(path); strings.HasPrefix(dir, within+"/"); dir = filepath.Dir(dir) {
		all = append(all, dir)
	}
	return all
}

// byMoving moves a directory above the path elsewhere, reads the file there, and moves the directory back.
func byMoving(path, parent, dir string) ([]byte, error) {
	var read []byte
	for _, to := range []string{parent + ".moved", dir + "/moved"} {
		if unix.Rename(parent, to) != nil {
			continue
		}
		b, err := readFile(to + strings.TrimPrefix(path, parent))()
		_ = unix.Rename(to, parent)
		if err == nil {
			read = append(read, b...)
		}
	}
	other := dir + "/other"
	_ = os.Mkdir(other, 0o700)
	if unix.Renameat2(unix.AT_FDCWD, parent, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) == nil {
		if b, err := readFile(other + strings.TrimPrefix(path, parent))(); err == nil {
			read = append(read, b...)
		}
		_ = unix.Renameat2(unix.AT_FDCWD, parent, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
	}
	return read, nil
}

// byHandle opens the file by its handle, relative to several mounts. If the handle cannot be obtained, it guesses
// handles.
func byHandle(path string) ([]byte, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return guessHandles()
	}
	for _, at := range []string{"/", "/tmp", ".", "/usr"} {
		mount, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		b, err := slurp(unix.OpenByHandleAt(mount, handle, unix.O_RDONLY))
		_ = unix.Close(mount)
		if err == nil {
			return b, nil
		}
	}
	return nil, unix.EPERM
}

// guessHandles tries the handles of the first inodes of the file systems in reach.
func guessHandles() ([]byte, error) {
	for _, at := range []string{"/usr", "."} {
		mount, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		defer unix.Close(mount)
		for ino := uint32(2); ino < 64; ino++ {
			id := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, ino), 0)
			fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(1, id), unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(fd)
				return []byte("CANARY: a file by its inode"), nil
			}
		}
	}
	return nil, unix.EPERM
}

// dial connects to a path as a Unix socket. An answer with status 200 counts as a way out.
func dial(path string) ([]byte, error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(c, "GET /admin/v1/status HTTP/1.1\r\nHost: doorward\r\nConnection: close\r\n\r\n")
	b, _ := io.ReadAll(io.LimitReader(c, most))
	if bytes.Contains(b, []byte(" 200 ")) {
		return []byte("CANARY: an answer of " + path), nil
	}
	return b, nil
}

// tamper tries every kind of change to a path and its neighbours. The test checks the result from outside.
func (l *loot) tamper(path string) {
	if within := os.Getenv(withinVar); within == "" || !strings.HasPrefix(path, within+"/") {
		return
	}
	dir := own()
	planted := dir + "/planted"
	_ = os.WriteFile(planted, []byte("planted by a server"), 0o600)
	acts := []func() error{
		func() error { return os.Chmod(path, 0o666) },
		func() error { return os.Truncate(path, 0) },
		func() error { return os.WriteFile(path, []byte("planted by a server"), 0o600) },
		func() error { return os.WriteFile(path+".planted", []byte("planted by a server"), 0o600) },
		func() error { return unix.Rename(path, path+".moved") },
		func() error { return unix.Rename(planted, path) },
		func() error { return os.Remove(path) },
		func() error { return os.Symlink(planted, path) },
	}
	for _, parent := range parents(path) {
		acts = append(acts, func() error { return os.WriteFile(parent+"/planted", []byte("planted by a server"), 0o600) },
			func() error { return plant(path, parent) })
	}
	for _, act := range acts {
		l.Tried++
		_ = act()
	}
}

// plant replaces a directory above the path by a new one that holds a file at the path.
func plant(path, parent string) error {
	if err := unix.Rename(parent, parent+".away"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("planted by a server"), 0o600)
}
