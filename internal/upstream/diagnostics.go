package upstream

import (
	"slices"
	"strings"
	"sync"
)

const (
	diagnosticLines = 5   // lines of standard error that are kept
	diagnosticBytes = 200 // bytes that are kept of each line
)

// diagnostics holds the last lines that the processes of a server wrote to standard error, and how
// the last one ended. Only the owner of the daemon sees it.
type diagnostics struct {
	mu    sync.Mutex
	lines []string
	fault string // the first line of the last process that names an error, else that looks like one
	end   string
	stray string // the last line on standard output that was no message
}

// begin forgets the lines of earlier processes when a new one starts.
func (s *diagnostics) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.lines = "", nil
}

// reportsFault reports whether a line looks like the reason why a process ended.
func reportsFault(line string) bool {
	line = strings.ToLower(line)
	faults := []string{"error:", "error ", "fatal", "exception", "cannot ", "not found", "denied", "refused"}
	return slices.ContainsFunc(faults, func(word string) bool { return strings.Contains(line, word) })
}

// namesFault reports whether a line begins with the name of an error, such as TypeError: of
// Node.js and Python. Before such a line these print the code that threw it, which often looks
// like an error too.
func namesFault(line string) bool {
	name, _, found := strings.Cut(line, ":")
	if _, last, qualified := strings.Cut(name, " "); qualified && !strings.HasPrefix(last, "[") { // Error [ERR_MODULE_NOT_FOUND]
		return false
	}
	name, _, _ = strings.Cut(name, " ")
	return found && (strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception"))
}

// clipped returns at most saidBytes bytes of a line.
func clipped(line string) string {
	if len(line) > diagnosticBytes {
		return strings.ToValidUTF8(line[:diagnosticBytes], "") + "…"
	}
	return line
}

func (s *diagnostics) garbled(b []byte) {
	line := clipped(strings.ToValidUTF8(strings.TrimSpace(string(b[:min(len(b), 2*diagnosticBytes)])), "?"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stray = line
}

func (s *diagnostics) add(line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	line = clipped(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "" && reportsFault(line) || !namesFault(s.fault) && namesFault(line) {
		s.fault = line
	}
	if len(s.lines) == diagnosticLines {
		s.lines = append(s.lines[:0], s.lines[1:]...)
	}
	s.lines = append(s.lines, line)
}

func (s *diagnostics) ended(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = how
}
