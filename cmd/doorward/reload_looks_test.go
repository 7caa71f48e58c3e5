package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAFileIsReadWhenItIsComplete: however a file is saved, in any number of steps with a check
// between them, the checks find it due once, when it is complete.
func TestAFileIsReadWhenItIsComplete(t *testing.T) {
	t.Parallel()
	const old, text = "policy: a.cedar\n", "mcpServers: {}\npolicy: b.cedar\n"
	inPlace := func(path string, flag int) []func() error {
		steps := []func() error{func() error { return appendTo(path, flag|os.O_TRUNC, "") }}
		for i := 0; i < len(text); i += 7 {
			steps = append(steps, func() error { return appendTo(path, os.O_APPEND, text[i:min(i+7, len(text))]) })
		}
		return steps
	}
	other := func(path string) string { return path + ".new" }
	for name, steps := range map[string]func(path string) []func() error{
		"in place": func(path string) []func() error { return inPlace(path, 0) },
		"deleted and created": func(path string) []func() error {
			return append([]func() error{func() error { return os.Remove(path) }}, inPlace(path, os.O_CREATE)...)
		},
		"renamed over": func(path string) []func() error {
			return append(inPlace(other(path), os.O_CREATE), func() error { return os.Rename(other(path), path) })
		},
		"another link": func(path string) []func() error {
			return append(inPlace(other(path), os.O_CREATE),
				func() error { return os.Symlink(other(path), path+".link") },
				func() error { return os.Rename(path+".link", path) })
		},
		"same size and time": func(path string) []func() error {
			return []func() error{
				func() error { return os.WriteFile(other(path), []byte(old[:8]+"b"+old[9:]), 0o600) },
				func() error { return os.Chtimes(other(path), time.Unix(1, 0), time.Unix(1, 0)) },
				func() error { return os.Rename(other(path), path) },
			}
		},
		"another mode": func(path string) []func() error {
			return []func() error{func() error { return os.Chmod(path, 0o640) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "doorward.yaml")
			if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			files := []string{path}
			l := looks{read: new(stats).of(files), last: new(stats).of(files)}
			if l.due(new(stats).of(files)) {
				t.Error("due without a change")
			}
			for i, step := range steps(path) {
				if err := step(); err != nil {
					t.Fatal(err)
				}
				if l.due(new(stats).of(files)) {
					t.Errorf("due after step %d", i+1)
				}
			}
			if !l.due(new(stats).of(files)) {
				t.Error("not due when it was complete")
			}
			l.read = new(stats).of(files)
			if l.due(new(stats).of(files)) {
				t.Error("due again")
			}
		})
	}
}

func appendTo(path string, flag int, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flag, 0o600)
	if err != nil {
		return fmt.Errorf("opening the file: %w", err)
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// TestFilesThatChangeAllTheTimeAreRead: a file that is written again before each check is read
// after a bounded number of them.
func TestFilesThatChangeAllTheTimeAreRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write := func(n int) []stamp {
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		return new(stats).of([]string{path})
	}
	seen := write(1)
	l := looks{read: seen, last: seen}
	for n := 2; !l.due(write(n)); n++ {
		if n > 2*mostUnsettled {
			t.Fatal("the file is never read")
		}
	}
}
