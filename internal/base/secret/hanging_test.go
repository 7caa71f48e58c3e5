package secret_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/doorward/doorward/internal/base/secret"
)

// A secret on a file system that does not answer is an error with its path after a while, so
// that the rest of a configuration can be used.
func TestASecretThatIsNotAnsweredIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		defer close(answers)
		_, err := (&secret.Reader{Open: func(path string) (*os.File, error) { <-answers; return os.Open(path) }}).ReadFile(path)
		if !errors.Is(err, secret.ErrNoAnswer) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	})
}
