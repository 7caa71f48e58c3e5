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

// diagnostics holds the last lines that the processes of a server wrote to standard error, how the
// last one ended, and what it printed on standard output that is no message. Only the owner of the daemon sees it.
type diagnostics struct {
	mu    sync.Mutex
	lines []string
	fault string // the first line of the last process of the highest rank above 0
	end   string
	said  int64  // lines on standard output that were no messages
	stray string // the last of them
}

// begin forgets the lines of earlier processes, and how the last one ended, when a new one starts:
// a process that runs has not ended.
func (s *diagnostics) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.lines, s.end, s.said, s.stray = "", nil, "", 0, ""
}

// rank says how well a line tells why a process ended: 3 names an error, 2 is a sentence of npm's
// error, 1 looks like an error, 0 does not.
func rank(line string) int {
	words := strings.Fields(line)
	switch npm := len(words) > 4 && words[0] == "npm"; {
	case besideFault(words):
		return 0
	case namesFault(line):
		return 3
	case npm:
		return 2
	case reportsFault(line):
		return 1
	}
	return 0
}

// besideFault reports whether npm prints a line beside the reason of a failure: a notice, a
// warning, or a field of the error, such as its code, which says less than the text after it.
func besideFault(words []string) bool {
	if len(words) < 2 || words[0] != "npm" {
		return false
	}
	if words[1] != "error" && words[1] != "ERR!" {
		return true
	}
	fields := []string{"code", "command", "dest", "errno", "path", "signal", "syscall"}
	return len(words) > 2 && slices.Contains(fields, words[2])
}

// reportsFault reports whether a line looks like the reason why a process ended.
func reportsFault(line string) bool {
	line = strings.ToLower(line)
	faults := []string{"error:", "error ", "fatal", "exception", "cannot ", "not found", "no such ", "no module ", "no version of", "denied", "refused"}
	return slices.ContainsFunc(faults, func(word string) bool { return strings.Contains(line, word) })
}

// namesFault reports whether a line begins with the name of an error, such as TypeError: of
// Node.js and Python. Before such a line these print the code that threw it, which often looks
// like an error too. npm prints such a line behind its own prefix.
func namesFault(line string) bool {
	name, _, found := strings.Cut(strings.TrimPrefix(line, "npm error "), ":")
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

// garbled keeps a line of standard output that is no message.
func (s *diagnostics) garbled(b []byte) {
	line := clipped(strings.ToValidUTF8(strings.TrimSpace(string(b[:min(len(b), 2*diagnosticBytes)])), "?"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said++
	s.stray = line
}

func (s *diagnostics) add(line string) {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "npm notice") { // of its own updates, after what a server says
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

// last returns the lines that are kept. The first that names an error, or else looks like one,
// precedes the others.
func (s *diagnostics) last() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != "" {
		lines = append(lines, s.fault)
	}
	for _, line := range s.lines {
		if line != s.fault {
			lines = append(lines, line)
		}
	}
	return lines
}

func (s *diagnostics) ended(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = how
}
