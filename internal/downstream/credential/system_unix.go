//go:build unix

package credential

import (
	"io/fs"
	"syscall"
)

// openFlags make an open follow no link and never block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// linksOf returns the number of hard links of a file; false: unknown.
func linksOf(fi fs.FileInfo) (uint64, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(st.Nlink), true // 16 bits on macOS
}
