//go:build unix

package secret_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
)

// ReadFile refuses a pipe at once: reading one without a writer would block the start.
func TestReadFileDoesNotWaitForAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.ReadFile(pipe); !errors.Is(err, secret.ErrNotRegular) {
		t.Errorf("got %v", err)
	}
}
