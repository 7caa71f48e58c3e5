package authn

import "runtime"

// turns bounds how many signatures of tokens that are not cached are checked at the same
// time: a check costs up to a millisecond, and anyone may present a token that only its
// signature refutes. Sources that failed too often share half of the processors, so that
// they delay no other source. A cached token needs no turn.
type turns struct{ within, beyond chan struct{} }

func newTurns() turns {
	n := runtime.GOMAXPROCS(0)
	return turns{within: make(chan struct{}, n), beyond: make(chan struct{}, max(1, n/2))}
}

// take waits for a turn and returns the function that ends it. beyond: the source failed
// too often.
func (t turns) take(beyond bool) (end func()) {
	slots := t.within
	if beyond {
		slots = t.beyond
	}
	slots <- struct{}{}
	return func() { <-slots }
}
