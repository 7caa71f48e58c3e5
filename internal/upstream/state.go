package upstream

import (
	"slices"
	"time"
)

// Circuit tells whether calls are refused because the server cannot be reached, or because its children keep ending, and
// for how long; with no time left, the next call is let through to see.
func (s *Server) Circuit() (open bool, wait time.Duration) {
	if s.def.Kind == KindStdio {
		wait = s.backoff.longest(time.Now())
		return wait > shortWait, wait
	}
	_, wait, open = s.circuit.open(time.Now())
	return open, wait
}

// shortWait is the longest wait before the next start of a program that Circuit does not report. A program that ended once
// has such a wait; a program that keeps ending has a longer one.
const shortWait = time.Second

// Counts is a snapshot; it never goes back.
func (s *Server) Counts() Counts {
	c := &s.counts
	return Counts{
		Garbage: c.garbage.Load(), Unknown: c.unknown.Load(), Late: c.late.Load(),
		Stray: c.stray.Load(), Violations: c.violations.Load(), Dropped: c.dropped.Load(),
	}
}

// LastWords returns how the last process of a stdio server ended, "" while none has, and
// the last lines that its processes wrote to standard error: at most 5, each of at most
// 200 bytes, and before them the first that reads like an error.
func (s *Server) LastWords() (end string, lines []string) {
	s.said.mu.Lock()
	defer s.said.mu.Unlock()
	if f := s.said.fault; f != "" && !slices.Contains(s.said.lines, f) {
		lines = append(lines, f)
	}
	return s.said.end, append(lines, s.said.lines...)
}

// Stray returns how many lines on standard output, or events, were no messages, and the
// last line of them, of at most 200 bytes.
func (s *Server) Stray() (n int64, last string) {
	s.said.mu.Lock()
	defer s.said.mu.Unlock()
	return s.counts.garbage.Load(), s.said.stray
}
