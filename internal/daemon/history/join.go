package history

import (
	"encoding/json"
	"slices"
)

// mostOpen is the largest number of acts that a Join keeps until their outcome.
const mostOpen = 10_000

// Join matches acts with their outcomes while they are written, in the order of the log. It
// returns an act when the act is over.
type Join struct {
	filter Filter
	open   map[uint64]Record
	order  []uint64 // the numbers of open acts and of some that are over, the oldest first
}

// NewJoin makes a Join of the acts that the filter selects. The known acts are
// earlier ones, the newest first, as from Search; those that are not over are joined too.
func NewJoin(f Filter, known ...Entry) *Join {
	j := &Join{filter: f, open: make(map[uint64]Record)}
	for _, e := range slices.Backward(known) {
		if e.Outcome == "open" {
			j.wait(e.Record)
		}
	}
	return j
}

// Take reads one line and returns the act that it ends. It returns false if the line ends no
// act, or one that the filter does not select.
func (j *Join) Take(line []byte) (Entry, bool) {
	ends := make(map[uint64]*ending)
	if isEnding(line) {
		noteEnding(ends, line, 0)
		for ref, end := range ends {
			r, known := j.open[ref]
			delete(j.open, ref)
			if e := entryOf(r, end); known && j.filter.takes(e) {
				return e, true
			}
		}
		return Entry{}, false
	}
	var r Record
	if json.Unmarshal(line, &r) != nil {
		return Entry{}, false
	}
	e := entryOf(r, nil)
	if e.Outcome == "open" {
		j.wait(r)
		return Entry{}, false
	}
	return e, j.filter.takes(e)
}

// wait keeps an act until its outcome. If more than mostOpen are open, the oldest is dropped.
func (j *Join) wait(r Record) {
	j.open[r.Seq] = r
	j.order = append(j.order, r.Seq)
	for len(j.open) > mostOpen {
		delete(j.open, j.order[0]) // without effect for an act that is over
		j.order = j.order[1:]
	}
	if len(j.order) > 2*mostOpen {
		j.order = slices.DeleteFunc(j.order, func(seq uint64) bool { _, waits := j.open[seq]; return !waits })
	}
}
