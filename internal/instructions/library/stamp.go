package library

import (
	"fmt"
	"io/fs"
	"os"
	"time"
)

// stamp is the state of a file without its content. Two equal stamps of one name, some
// time apart, mean that the file was not written in between.
type stamp struct {
	mode     fs.FileMode
	uid      uint32
	size     int64
	dev, ino uint64
	mtime    int64 // nanoseconds since 1970
	ctime    int64
}

// quiet reports that the file has not changed for a second, by the kernel's clock. It is
// unreliable after the clock was set back.
func (s stamp) quiet(now time.Time) bool {
	return now.UnixNano()-s.ctime >= int64(time.Second)
}

// refuse returns the reason for which a file or directory is not trusted: a user other
// than its owner who can write it could control what agents are told. An access list that
// lets more users write shows in the group's bits.
func (s stamp) refuse() string {
	switch {
	case s.uid != 0 && int(s.uid) != os.Geteuid():
		return fmt.Sprintf("belongs to user %d: it must belong to the daemon's user or to root", s.uid)
	case s.mode.Perm()&0o022 != 0:
		return fmt.Sprintf("is writable by users other than its owner (mode %04o): run chmod go-w on it", s.mode.Perm())
	}
	return ""
}

// kind returns the name of a file's type, for a file that is not regular.
func (s stamp) kind() string {
	switch s.mode.Type() {
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDir:
		return "a directory"
	}
	return "a device"
}
