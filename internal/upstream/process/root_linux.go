package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// root is the file system of one server while it is being built: a tmpfs with one mount for each layer, which then
// replaces the host's root in the server's mount namespace. A path without a layer is absent, so no rename, second mount
// or nested namespace can uncover it.
//
// Mount points are opened one component at a time, without following links: the server writes its private home, and a
// link that it leaves there must not lead a later mount elsewhere.
type root struct {
	fd    int   // the new root directory
	seals []int // mounts of the root's own that become read-only at the end
}

// staging is the directory on which the new root is built. It is never granted as a whole, so no layer needs it.
const staging = "/dev"

// newRoot mounts the empty root. It hides the staging directory, so the caller opens devices before.
func newRoot() (*root, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return nil, fmt.Errorf("mounting an empty root: %w", err)
	}
	fd, err := unix.Open(staging, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the new root: %w", err)
	}
	return &root{fd: fd, seals: []int{fd}}, nil
}

// enter makes the new root the root and the working directory, and detaches the host's.
func (r *root) enter() error {
	for _, fd := range r.seals {
		if err := readOnly(fdPath(fd), false); err != nil {
			return fmt.Errorf("making the root read-only: %w", err)
		}
	}
	if err := unix.Fchdir(r.fd); err != nil {
		return fmt.Errorf("going to the new root: %w", err)
	}
	// The old root is mounted on top of the new one, and unmounted from there (pivot_root(2), NOTES).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detaching the old root: %w", err)
	}
	for _, fd := range r.seals {
		_ = unix.Close(fd)
	}
	return unix.Chdir("/")
}

// fdPath returns the path of an open descriptor.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// open returns a descriptor of path in the new root. With create, missing parts are made, and parts of the wrong kind
// are replaced: they are in the root itself or in the private home, never in files of the host.
func (r *root) open(path string, dir, create bool) (int, error) {
	at, err := unix.Openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range parts {
		next, err := component(at, name, i < len(parts)-1 || dir, create)
		_ = unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("making a place for %s: %w", path, err)
		}
		at = next
	}
	return at, nil
}

// component opens one component below at.
func component(at int, name string, dir, create bool) (int, error) {
	for range 3 {
		fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			is, err := isDir(fd)
			if err == nil && is == dir && !isLink(fd) {
				return fd, nil
			}
			_ = unix.Close(fd)
			if err == nil {
				err = remove(at, name, is, create)
			}
			if err != nil {
				return -1, err
			}
			continue
		}
		if err != unix.ENOENT || !create {
			return -1, err
		}
		if err := makePlace(at, name, dir); err != nil && err != unix.EEXIST {
			return -1, err
		}
	}
	return -1, unix.ELOOP
}

// makePlace makes an empty directory or file.
func makePlace(at int, name string, dir bool) error {
	if dir {
		return unix.Mkdirat(at, name, 0o755)
	}
	return unix.Mknodat(at, name, unix.S_IFREG|0o644, 0)
}

// remove removes a file or an empty directory that is in the way of a mount point.
func remove(at int, name string, dir, allowed bool) error {
	switch {
	case !allowed:
		return unix.ENOTDIR
	case dir:
		return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	return unix.Unlinkat(at, name, 0)
}

func isDir(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

func isLink(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func isSocket(fd int) bool { return hasType(fd, unix.S_IFSOCK) }

func isRegular(fd int) bool { return hasType(fd, unix.S_IFREG) }

func hasType(fd int, kind uint32) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind
}

// bind mounts source at a path, with everything that is mounted below it.
func (r *root) bind(source int, path string, dir, create, write bool) error {
	at, err := r.open(path, dir, create)
	if err != nil {
		return err
	}
	err = unix.Mount(fdPath(source), fdPath(at), "", unix.MS_BIND|unix.MS_REC, "")
	_ = unix.Close(at)
	if err != nil {
		return fmt.Errorf("showing %s: %w", path, err)
	}
	if write {
		return nil
	}
	return r.freeze(path, dir)
}

// freeze makes the mount at path read-only, and all mounts below it.
func (r *root) freeze(path string, dir bool) error {
	at, err := r.open(path, dir, false)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := readOnly(fdPath(at), true); err != nil {
		return fmt.Errorf("making %s read-only: %w", path, err)
	}
	return nil
}

// mount mounts a new file system on a directory. A sealed one becomes read-only when the root is complete.
func (r *root) mount(fstype, path string, flags uintptr, options string, create, sealed bool) error {
	at, err := r.open(path, true, create)
	if err != nil {
		return err
	}
	err = unix.Mount(fstype, fdPath(at), fstype, flags|unix.MS_NOSUID, options)
	_ = unix.Close(at)
	if err != nil {
		return fmt.Errorf("mounting %s on %s: %w", fstype, path, err)
	}
	if !sealed {
		return nil
	}
	fd, err := r.open(path, true, false)
	if err == nil {
		r.seals = append(r.seals, fd)
	}
	return err
}

// pin mounts a directory on itself. A mount point cannot be renamed or removed, so the covers below keep their place.
func (r *root) pin(path string) error {
	at, err := r.open(path, true, false)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.Mount(fdPath(at), fdPath(at), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("pinning %s: %w", path, err)
	}
	return nil
}

// link makes a symbolic link if nothing is in its place but an empty file, as mount points leave behind.
func (r *root) link(path, target string) error {
	dir, err := r.open(filepath.Dir(path), true, true)
	if filepath.Dir(path) == "/" {
		dir, err = unix.Openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstatat(dir, filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 {
		_ = unix.Unlinkat(dir, filepath.Base(path), 0)
	}
	if err := unix.Symlinkat(target, dir, filepath.Base(path)); err != nil && err != unix.EEXIST {
		return fmt.Errorf("linking %s: %w", path, err)
	}
	return nil
}

// text mounts a read-only file with a given content at a path.
func (r *root) text(path string, content []byte, create bool) error {
	const name = ".text"
	fd, err := unix.Openat(r.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := r.bind(fd, path, false, create, false); err != nil {
		return err
	}
	return unix.Unlinkat(r.fd, name, 0) // the mount keeps the file
}

// readOnly makes a mount read-only; all: the mounts below it too.
func readOnly(path string, all bool) error {
	flags := uint(0)
	if all {
		flags = unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == unix.ENOSYS {
		return remount(path, all)
	}
	return err
}

// remount does the work of readOnly for kernels before 5.12, one mount at a time. A mount that cannot be reached, such
// as one of FUSE for another user, is left out: the server cannot reach it either.
func remount(path string, all bool) error {
	if err := remountOne(path); err != nil || !all {
		return err
	}
	held, err := grab(path)
	if err != nil {
		return err
	}
	defer unix.Close(held.fd)
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if !below(m.path, held.path) || unreached(m.path) {
			continue
		}
		if err := remountOne(m.path); err != nil && !absent(err) {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// unreached reports whether a mount belongs to another user, or the program behind it has ended.
func unreached(path string) bool {
	err := unix.Statfs(path, new(unix.Statfs_t))
	return absent(err) || err == unix.EPERM || err == unix.ENOTCONN
}

// remountOne makes one mount read-only, with the flags that it must keep.
func remountOne(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	const same = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODIRATIME // same bits as the MS_ flags of these names
	keep := uintptr(st.Flags) & same
	if st.Flags&unix.ST_RELATIME != 0 {
		keep |= unix.MS_RELATIME
	}
	return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|keep, "")
}
