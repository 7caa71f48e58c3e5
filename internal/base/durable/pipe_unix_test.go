//go:build unix

package durable_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// A pipe in the place of a file or of its directory makes each function fail with the path at
// once. A function that waited for the other end would wait for ever, also after the pipe is gone.
func TestNothingWaitsForAPipe(t *testing.T) {
	t.Parallel()
	at := func(flag int) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, flag|durable.NoFollow, 0o600)
			if err == nil {
				f.Close()
			}
			return err
		}
	}
	pinned := func(path string) error {
		p, err := durable.Pin(path)
		if err == nil {
			p.Close()
		}
		return err
	}
	type door struct {
		what string
		open func(path string) error
	}
	for place, doors := range map[string][]door{
		"dir": {
			{"OpenRoot", func(path string) error { _, err := durable.OpenRoot(filepath.Dir(path)); return err }},
			{"ReplaceAt", func(path string) error { return durable.ReplaceAt(path, []byte("x")) }},
			{"ReplaceLocked", func(path string) error { return durable.ReplaceLocked(path, []byte("x")) }},
			{"ReadFile", func(path string) error { _, err := durable.ReadFile(path); return err }},
			{"Pin", pinned},
			{"Secret", func(path string) error {
				_, err := durable.Secret(path, 100, func() ([]byte, error) { return []byte("x"), nil })
				return err
			}},
		},
		"dir/file": {
			{"ReadFile", func(path string) error { _, err := durable.ReadFile(path); return err }},
			{"NoFollow to append", at(os.O_WRONLY | os.O_APPEND | os.O_CREATE)},
			{"Secret", func(path string) error { _, err := durable.Secret(path, 100, nil); return err }},
		},
	} {
		for _, d := range doors {
			t.Run(fmt.Sprintf("%s of %s", d.what, place), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), place)
				file := path
				if place == "dir" {
					file = filepath.Join(path, "file")
				} else if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := syscall.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- d.open(file) }()
				select {
				case err := <-done:
					if err == nil || !strings.Contains(err.Error(), path) {
						t.Errorf("got %v", err)
					}
				case <-time.After(20 * time.Second):
					t.Error("it waits for the pipe")
				}
			})
		}
	}
}

// The errors of a pinned file name its path, not only a name within its directory.
func TestThePathIsInTheErrorsOfAPinnedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	p, err := durable.Pin(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, make := range map[string]func() error{
		"missing": func() error { return nil },
		"a loop":  func() error { return os.Symlink("file", path) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		_, err := p.Open()
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
