//go:build unix

package library

import (
	"fmt"
	"io/fs"
	"syscall"
)

// asItIs opens a file without following a link or blocking on a pipe.
const asItIs = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// stampOf returns the stamp of a file from Lstat or Stat.
func stampOf(fi fs.FileInfo) (stamp, error) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, fmt.Errorf("the owner of %s cannot be determined on this system", fi.Name())
	}
	return stamp{mode: fi.Mode(), uid: st.Uid, size: fi.Size(), dev: uint64(st.Dev), ino: st.Ino,
		mtime: fi.ModTime().UnixNano(), ctime: changeTime(st)}, nil
}
