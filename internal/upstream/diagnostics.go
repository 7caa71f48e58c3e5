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
	fault string // the first line of the last process of the highest rank above 0
	end   string
	stray string // the last line on standard output that was no message
}

// begin forgets the lines of earlier processes when a new one starts.
func (s *diagnostics) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.lines = "", nil
}

// rank says how well a line tells why a process ended: 2 names an error, 1 looks like one, 0 does
// not. npm prints a code, the call that failed and its path before the line that names what is
// missing.
func rank(line string) int {
	said, npm := strings.CutPrefix(strings.Replace(line, "npm ERR! ", "npm error ", 1), "npm error ")
	words := strings.Fields(said)
	switch {
	case npm && len(words) > 2 && !slices.Contains([]string{"code", "syscall", "path", "errno", "dest", "command"}, words[0]), namesFault(line):
		return 2
	case reportsFault(line):
		return 1
	}
	return 0
}

// reportsFault reports whether a line looks like the reason why a process ended. npx warns of a
// package that is not found before it installs it.
func reportsFault(line string) bool {
	line = strings.ToLower(line)
	faults := []string{"error:", "error ", "fatal", "exception", "cannot ", "not found", "no such ", "no module ", "no version of", "denied", "refused"}
	return !strings.HasPrefix(line, "npm warn") && slices.ContainsFunc(faults, func(word string) bool { return strings.Contains(line, word) })
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
	if rank(line) > rank(s.fault) {
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
