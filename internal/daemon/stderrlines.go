package daemon

import (
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// stderrLines keeps the last lines of each server's standard error.
type stderrLines struct {
	mu    sync.Mutex
	lines map[string][]string // by server, the oldest first
}

// Bounds of the kept standard error of one server: lines, and bytes of a line.
const (
	mostStderrLines   = 50
	longestStderrLine = 500
)

func (s *stderrLines) note(server, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = make(map[string][]string)
	}
	all := s.lines[server]
	if len(all) == mostStderrLines {
		all = append(all[:0], all[1:]...)
	}
	s.lines[server] = append(all, plaintext.Clip(line, longestStderrLine))
}

func (s *stderrLines) of(server string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines[server])
}
