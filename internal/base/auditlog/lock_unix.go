//go:build unix

package auditlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// beingWritten reports whether some process, this one included, has dir open for
// writing. An unfinished last line is then about to be finished; otherwise it is torn.
func beingWritten(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, audit.LockName), os.O_RDONLY|durable.NoFollow, 0)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the lock: %w", err)
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for the lock: %w", err)
	}
	return false, syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
}
