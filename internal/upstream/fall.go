package upstream

import (
	"sync/atomic"
	"time"
)

// Fall is the end of a process that ended by itself, during a call or with an error. It is known
// until a process that was started later has answered a client's call.
type Fall struct {
	Reason string // its exit status, or why Doorward ended it
	Calls  bool   // it had calls to answer
	Count  int    // how many processes have ended so since it was known
	Last   time.Time
	words  *diagnostics
}

// Lines returns the last lines of the process on standard error, as LastWords does.
func (f *Fall) Lines() []string { return f.words.last() }

// falls keeps the last fall of a server.
type falls struct{ last atomic.Pointer[Fall] }

func (s *falls) add(f Fall) {
	for {
		before := s.last.Load()
		f.Count = 1
		if before != nil {
			f.Count += before.Count
		}
		if s.last.CompareAndSwap(before, &f) {
			return
		}
	}
}

// answered forgets what had ended before the process that has answered a call was started.
func (s *falls) answered(started time.Time) {
	if f := s.last.Load(); f != nil && started.After(f.Last) {
		s.last.CompareAndSwap(f, nil)
	}
}
