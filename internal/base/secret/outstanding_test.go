package secret_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// However often a secret is read while its file system does not answer, one read waits for the
// answer. The first read after the answer reads the file anew and judges it anew.
func TestAFileSystemThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode os.FileMode // of the file when the file system answers again
		want error
	}{"private": {0o600, nil}, "world-readable": {0o604, secret.ErrWorldReadable}} {
		dir := t.TempDir()
		path, other := filepath.Join(dir, "secret"), filepath.Join(dir, "other")
		if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.WriteFile(other, []byte("o"), 0o600)); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			answers, asked := make(chan struct{}), atomic.Int32{}
			r := secret.Reader{Open: func(p string) (*os.File, error) {
				f, err := os.Open(p)
				if p == path {
					asked.Add(1)
					<-answers
				}
				return f, err
			}}
			for range 50 {
				if _, err := r.ReadFile(path); !errors.Is(err, secret.ErrNoAnswer) {
					t.Fatalf("%s: %v", name, err)
				}
			}
			began := time.Now()
			if _, err := r.ReadFile(other); err != nil || time.Since(began) != 0 {
				t.Errorf("%s: another file: %v after %v", name, err, time.Since(began))
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("%s: %d reads wait", name, n)
			}
			if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("new"), 0o600), os.Chmod(path, c.mode)); err != nil {
				t.Fatal(err)
			}
			close(answers)
			v, err := r.ReadFile(path)
			if !errors.Is(err, c.want) || err == nil && v.Reveal() != "new" {
				t.Errorf("%s: %v, %v", name, v, err)
			}
		})
	}
}
