package doortest

import (
	"bytes"
	"sync"
	"time"
)

// lines collects the output of a process and wakes the callers of wait.
type lines struct {
	mu      sync.Mutex
	whole   []string
	partial []byte
	changed chan struct{} // closed and replaced when a line arrives
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

// Write accepts any part of the stream; only complete lines become visible.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.whole = append(l.whole, string(line))
		l.partial = rest
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.whole...)
}

// wait reports whether a matching line arrived before the limit passed or ended was closed.
// Earlier lines count too.
func (l *lines) wait(match func(string) bool, limit time.Duration, ended <-chan struct{}) bool {
	timeout := time.After(limit)
	over := false
	for seen := 0; ; {
		l.mu.Lock()
		fresh, changed := l.whole[seen:], l.changed
		seen = len(l.whole)
		l.mu.Unlock()
		for _, line := range fresh {
			if match(line) {
				return true
			}
		}
		if over {
			return false
		}
		select {
		case <-changed:
		case <-ended:
			over = true // read once more: the last lines may have arrived with the end
		case <-timeout:
			return false
		}
	}
}
