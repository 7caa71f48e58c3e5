package upstream

import "time"

// Circuit reports whether calls are refused because the server cannot be reached, or because
// its children keep ending, and for how long. Without time left, the next call is let through
// as a probe.
func (s *Server) Circuit() (open bool, wait time.Duration) {
	if s.def.Kind == KindStdio {
		wait = s.backoff.longest(time.Now())
		return wait > shortWait, wait
	}
	_, wait, open = s.circuit.open(time.Now())
	return open, wait
}

// shortWait is the longest pause before the next start of a program that does not count as an
// open circuit. A program that ended once has such a pause; a program that keeps ending has a
// longer one.
const shortWait = time.Second

// Counts returns a snapshot of the counts, which only grow.
func (s *Server) Counts() Counts {
	c := &s.counts
	return Counts{
		Garbage: c.garbage.Load(), Unknown: c.unknown.Load(), Late: c.late.Load(),
		Stray: c.stray.Load(), Violations: c.violations.Load(), Dropped: c.dropped.Load(),
	}
}

// LastWords returns how the last process of a stdio server ended, "" if none has, and the
// last lines on standard error since a process was last started: at most 5, each of at most
// 200 bytes. The first line that names an error, or else looks like one, precedes the others.
func (s *Server) LastWords() (end string, lines []string) {
	lines = s.diagnostics.last()
	s.diagnostics.mu.Lock()
	defer s.diagnostics.mu.Unlock()
	return s.diagnostics.end, lines
}

// Stray returns how many lines on standard output were no messages since a process was last
// started, and the last of these lines, of at most 200 bytes. A server over the network has none.
func (s *Server) Stray() (n int64, last string) {
	s.diagnostics.mu.Lock()
	defer s.diagnostics.mu.Unlock()
	return s.diagnostics.said, s.diagnostics.stray
}

// Address returns the URL of a server over the network; empty: it has none.
func Address(s *Server) string {
	if s.url == nil {
		return ""
	}
	return s.url.String()
}

// Fallen returns the last fall of a process of a server; nil: there is none.
func Fallen(s *Server) *Fall { return s.falls.last.Load() }
