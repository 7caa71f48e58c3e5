package front

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// A stream for which running calls leave no room removes no ended stream: the client that was away
// still gets the answer. The stream of an ended call makes room only if that is enough.
func TestAnEndedStreamIsDroppedOnlyForRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		running, size, ended int // the size is that of each running stream
		opens                bool
		dropped              int
	}{
		{sessionStreams, 10, 3, false, 0},
		{3, 900 << 10, 3, false, 0},
		{sessionStreams + 8, 10, 0, false, 0},
		{sessionStreams - 1, 10, 1, true, 1},
		{sessionStreams - 3, 10, 3, true, 1},
		{2, 900 << 10, 3, true, 0},
		{2, 1 << 20, 3, true, 3},
		{0, 0, 3, true, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			s := newSession(newSessionID(), alice, "s", overStreamable, time.Now())
			s.logs = make(map[uint64]*eventLog)
			for s.streams < uint64(c.ended+c.running) {
				s.streams++
				l := newEventLog(s.streams, true)
				if s.logs[s.streams] = l; s.streams > uint64(c.ended) {
					l.put(bytes.Repeat([]byte("x"), c.size), 0)
					continue
				}
				l.put([]byte("the answer"), 0)
				l.end()
			}
			if l := s.openLog(); (l != nil) != c.opens {
				t.Errorf("it can be resumed: %v", l != nil)
			}
			for n := 1; n <= c.ended; n++ {
				if kept := s.logOf(uint64(n)) != nil; kept != (n > c.dropped) {
					t.Errorf("ended stream %d is kept: %v", n, kept)
				}
			}
		})
	}
}
