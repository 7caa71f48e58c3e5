package peer

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// fileID identifies one state of a file. Two equal, settled values mean the same file
// with the same contents.
type fileID struct {
	mount        uint64 // never used again during a boot (Linux 6.8), else 0
	major, minor uint32
	ino, size    uint64
	mtime, ctime int64 // nanoseconds since 1970
}

// same reports whether two values name the same file, whatever its contents.
func (a fileID) same(b fileID) bool {
	return a.major == b.major && a.minor == b.minor && a.ino == b.ino
}

// identify reads a file's identity from the kernel, without a request to the
// server of its file system, which may never answer. An empty path means fd
// itself.
func identify(fd int, path string) (fileID, bool) {
	flags := unix.AT_STATX_DONT_SYNC | unix.AT_SYMLINK_NOFOLLOW
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, path, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID_UNIQUE, &st); err != nil {
		return fileID{}, false
	}
	id := fileID{major: st.Dev_major, minor: st.Dev_minor, ino: st.Ino, size: st.Size,
		mtime: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), ctime: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec)}
	if st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		id.mount = st.Mnt_id
	}
	return id, st.Mode&unix.S_IFMT == unix.S_IFREG
}

// local is the set of file systems whose files the kernel reads by itself. On any other,
// a read waits for a program or another machine, which may give different bytes each
// time.
var local = map[string]bool{
	"bcachefs": true, "btrfs": true, "erofs": true, "exfat": true, "ext2": true, "ext3": true, "ext4": true,
	"f2fs": true, "iso9660": true, "jfs": true, "nilfs2": true, "ntfs3": true, "overlay": true, "ramfs": true,
	"reiserfs": true, "rootfs": true, "squashfs": true, "tmpfs": true, "vfat": true, "xfs": true, "zfs": true,
}

// isLocal looks the file's mount up in the kernel's list. statfs would report the type
// too, but asks the server of a FUSE file system, which need not answer. A file on a
// mount that this process does not have (a memfd, another mount namespace) is not local.
func isLocal(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	return local[fsType(mounts, st.Mnt_id)]
}

// fsType returns the type of a mount: the first word after the single dash. The kernel
// escapes blanks in the fields before it.
func fsType(mountinfo []byte, mount uint64) string {
	prefix := append(strconv.AppendUint(nil, mount, 10), ' ')
	for line := range bytes.Lines(mountinfo) {
		if !bytes.HasPrefix(line, prefix) {
			continue
		}
		_, rest, ok := bytes.Cut(line, []byte(" - "))
		if f := bytes.Fields(rest); ok && len(f) > 0 {
			return string(f[0])
		}
	}
	return ""
}
