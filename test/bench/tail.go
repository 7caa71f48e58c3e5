//go:build linux

package main

import (
	"strings"
	"sync"
)

// tail keeps the last lines of a program's output for error messages.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 20

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return "it printed nothing"
	}
	return "it printed:\n\t" + strings.Join(t.lines, "\n\t")
}
