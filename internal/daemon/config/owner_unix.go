//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// judgeOwner refuses a file that users other than this user and root can write. An access control list that
// lets more users write shows in the group's bits, so it is refused too.
func judgeOwner(info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); !ok {
		return fmt.Errorf("the owner of the file cannot be determined on this system")
	} else if uid := int(st.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, who could change which commands run as you; it must belong to you or root", uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("users other than its owner can write it (mode %04o) and change which commands run; run chmod go-w on it", mode)
	}
	return nil
}
