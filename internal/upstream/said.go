package upstream

import (
	"slices"
	"strings"
	"sync"
)

const (
	saidLines = 5   // kept of what a server wrote to standard error
	saidBytes = 200 // of each line
)

// said is what the processes of a server wrote last to standard error, and how the last
// one that ended did. It is for the owner of the daemon alone.
type said struct {
	mu    sync.Mutex
	lines []string
	fault string // the first line of the last process that reads like an error
	end   string
	stray string // the last line on standard output that is no message
}

// begin is for a process that starts.
func (s *said) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.lines = "", nil
}

// reportsFault reports a line that reads like the reason of an end.
func reportsFault(line string) bool {
	line = strings.ToLower(line)
	faults := []string{"error:", "error ", "fatal", "exception", "cannot ", "not found", "denied", "refused"}
	return slices.ContainsFunc(faults, func(word string) bool { return strings.Contains(line, word) })
}

// clipped bounds a line.
func clipped(line string) string {
	if len(line) > saidBytes {
		return strings.ToValidUTF8(line[:saidBytes], "") + "…"
	}
	return line
}

func (s *said) garbled(b []byte) {
	line := clipped(strings.ToValidUTF8(strings.TrimSpace(string(b[:min(len(b), 2*saidBytes)])), "?"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stray = line
}

func (s *said) add(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	line = clipped(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "" && reportsFault(line) {
		s.fault = line
	}
	if len(s.lines) == saidLines {
		s.lines = append(s.lines[:0], s.lines[1:]...)
	}
	s.lines = append(s.lines, line)
}

func (s *said) ended(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = how
}
