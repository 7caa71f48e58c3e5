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

// most bounds what is read of one file.
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

// own is a directory that the thief may write.
func own() string {
	dir, err := os.MkdirTemp("", "thief")
	if err != nil {
		return "/tmp"
	}
	return dir
}

// routes are the ways to one path.
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

// roots are other names for a root: those of processes, working directories and descriptors.
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

// parents are the directories above a path that may be changed, the nearest first.
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

// byMoving moves a directory above the path elsewhere, looks there, and moves it back.
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

// byHandle opens the file by a handle that is made of what can be known of it, relative to every directory in reach.
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

// guessHandles tries the first inodes of the file systems in reach.
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

// dial connects to a path. A socket that takes a connection is a way out.
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

// tamper changes a path, and what is beside it, in every way. The test looks from outside.
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

// plant puts another directory in the place of one above the path, with a file of the path's name in it.
func plant(path, parent string) error {
	if err := unix.Rename(parent, parent+".away"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("planted by a server"), 0o600)
}
