package store

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// remote holds the file systems, by the type number of statfs, whose content other machines
// can change, or which a program in user space serves.
var remote = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9p",
	0x65735546: "FUSE",
	0x5346414f: "AFS",
	0x6b414653: "kAFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x786f4256: "VirtualBox shared folder",
	0xbacbacbc: "VMware shared folder",
	0x7c7c6673: "Parallels shared folder",
}

func filesystemOf(dir string) (filesystem, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return filesystem{}, err
	}
	name, known := remote[uint32(st.Type)]
	if !known {
		return filesystem{name: fmt.Sprintf("%#x", uint32(st.Type)), local: true}, nil
	}
	var at syscall.Stat_t
	if name != "FUSE" || syscall.Stat(dir, &at) != nil {
		return filesystem{name: name}, nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return filesystem{name: name}, nil // an unknown FUSE file system is refused
	}
	return fuse(mounts, uint64(at.Dev)), nil
}

// fuse returns the FUSE file system with device number dev, from the list of mounts. The
// type fuseblk is on a disk of this machine (NTFS, exFAT), which the kernel mounts only
// once. All other types are not local.
func fuse(mounts []byte, dev uint64) filesystem {
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&0xffffff00
	want := fmt.Appendf(nil, "%d:%d", major, minor)
	for line := range bytes.Lines(mounts) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		f, kind := bytes.Fields(before), bytes.Fields(after)
		if len(f) > 2 && len(kind) > 0 && bytes.Equal(f[2], want) {
			return filesystem{name: string(kind[0]), local: string(kind[0]) == "fuseblk"}
		}
	}
	return filesystem{name: "FUSE"}
}
