package mail

import "slices"

// states holds all states; the first openStates are not final.
var states = []string{Held, Queued, Leased, Acked, Rejected, Expired, Dead, Refused, Purged, Evicted}

const openStates = 3

func isFinalState(s string) bool { return slices.Index(states, s) >= openStates }

// tally counts deliveries by state, in the order of states.
type tally [10]int64

// tallyColumns are the counters of a mailbox, in the order of states.
const tallyColumns = `m.held, m.queued, m.leased, m.acked, m.rejected, m.expired, m.dead, m.refused, m.purged, m.evicted`

func (t *tally) places() []any {
	dest := make([]any, len(t))
	for i := range t {
		dest[i] = &t[i]
	}
	return dest
}

func (t *tally) of(state string) int64 { return t[slices.Index(states, state)] }

func (t *tally) add(state string, n int64) { t[slices.Index(states, state)] += n }

// pending counts the messages that are stored for the recipient and not acknowledged.
func (t *tally) pending() int64 { return t.of(Queued) + t.of(Leased) }

func (t *tally) open() int64 { return t.pending() + t.of(Held) }

func (t *tally) sum() (n int64) {
	for _, c := range t {
		n += c
	}
	return n
}

func (t *tally) missed() Missed {
	return Missed{Evicted: int(t.of(Evicted)), Expired: int(t.of(Expired)), Dead: int(t.of(Dead)),
		Refused: int(t.of(Refused)), Purged: int(t.of(Purged))}
}

func (t *tally) byState() map[string]int64 {
	m := make(map[string]int64, len(t))
	for i, s := range states {
		m[s] = t[i]
	}
	return m
}
