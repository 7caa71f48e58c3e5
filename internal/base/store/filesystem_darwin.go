package store

import "syscall"

// mntLocal is MNT_LOCAL of <sys/mount.h>: the file system is stored locally.
const mntLocal = 0x1000

func filesystemOf(dir string) (filesystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return filesystem{}, err
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	fs := filesystem{name: string(name), local: st.Flags&mntLocal != 0}
	switch fs.name {
	case "macfuse", "osxfuse", "fuse-t":
		fs.local = false
	}
	return fs, nil
}
