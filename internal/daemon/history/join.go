package history

import "encoding/json"

// mostOpen bounds the acts whose outcome a Join waits for.
const mostOpen = 10_000

// Join puts acts and their outcomes together while they are written, in the order of the
// log. An act is given out when it is over.
type Join struct {
	filter Filter
	open   map[uint64]Record
	order  []uint64
}

// NewJoin makes a join of the acts that the filter takes.
func NewJoin(f Filter) *Join { return &Join{filter: f, open: make(map[uint64]Record)} }

// Take takes one line in and returns the act that it ends. False: it ends none that is
// wanted.
func (j *Join) Take(line []byte) (Entry, bool) {
	ends := make(map[uint64]*ending)
	if isEnding(line) {
		noteEnding(ends, line)
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

// wait keeps an act. The oldest one makes room.
func (j *Join) wait(r Record) {
	j.open[r.Seq] = r
	j.order = append(j.order, r.Seq)
	if len(j.order) > mostOpen {
		delete(j.open, j.order[0])
		j.order = j.order[1:]
	}
}
