package approval

import "slices"

// Enter takes a place for a held call, from the time before its question is asked. A call that
// a grant covers needs none, since it does not wait. leave gives the place back. The error is
// ErrFull.
func (q *Queue) Enter(c Call) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.ContainsFunc(q.grants, func(g Grant) bool { return g.covers(c) && !q.over(g) }) {
		return func() {}, nil
	}
	return enter(q, c.Act.Who.Name())
}

// seat takes a place for a caller that is about to wait, if it has none. The caller holds mu.
func (w *waiter) seat(q *Queue, name string) (err error) {
	if w.leave == nil {
		w.leave, err = enter(q, name)
	}
	return err
}

// enter takes a place for a call of a caller, which holds the mu of the queue. leave takes mu.
func enter(q *Queue, name string) (leave func(), err error) {
	if q.under >= mostOpen || q.ofOne[name] >= mostOfOne {
		return nil, ErrFull
	}
	q.under++
	q.ofOne[name]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.under--
		if q.ofOne[name]--; q.ofOne[name] == 0 {
			delete(q.ofOne, name)
		}
	}, nil
}

// full reports whether there is no room for the question of a call. The questions of one caller
// share bytesOfOne. Its only question may be longer, and then takes at most half of the room
// that is left, so that a caller does not take the room of the others. The caller holds mu.
func (q *Queue) full(c Call) bool {
	own, left, size := q.ofWho[c.Act.Who.Name()], mostBytes-q.bytes, c.bytes()
	return len(q.byN) >= mostOpen || own.n >= mostOfOne || size > left ||
		own.bytes+size > bytesOfOne && (own.n > 0 || size > left/2)
}

// share is what the open questions of one caller take.
type share struct{ n, bytes int }

// shares has the share of each caller with open questions.
type shares map[string]share

// charge adds n questions with that many bytes to the share of a caller.
func (s shares) charge(who string, n, bytes int) {
	own := s[who]
	own.n, own.bytes = own.n+n, own.bytes+bytes
	if s[who] = own; own.n == 0 {
		delete(s, who)
	}
}
