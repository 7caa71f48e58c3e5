//go:build unix

package credential

import (
	"io/fs"
	"syscall"
)

// openFlags follow no link and never block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// linksOf is how many names a file has; false: that cannot be told.
func linksOf(fi fs.FileInfo) (uint64, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(st.Nlink), true // 16 bits on macOS
}
