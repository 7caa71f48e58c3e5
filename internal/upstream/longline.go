package upstream

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// A message above the limit is dropped, and the process that wrote it continues, because
// sessions share it. The two ends of the message are kept, because one of them names the call
// that it answers.

// tooLong fails the call that a dropped message seems to answer: the one that it names, or
// the only one in flight. One that is no answer to a call is counted and logged; the error says
// that there were too many.
func (in *intake) tooLong(l *longLine) error {
	in.stream.srv.counts.dropped.Add(1)
	in.stream.srv.log.Warn("a message of the server is larger than limits.answer_bytes and was dropped", "bytes", l.size, "limit", in.stream.srv.def.MaxMessage)
	id, answer := l.answers()
	if answer && id == 0 {
		id = in.stream.pending.sole()
	}
	if c, _ := in.stream.pending.take(id); c != nil {
		c.finish(Reply{}, newFault(ErrTooLarge, fmt.Sprintf("the answer has %d bytes, limits.answer_bytes is %d", l.size, in.stream.srv.def.MaxMessage)))
		return nil
	}
	in.count()
	in.bad++
	return in.tooMuch()
}

// answers reports whether the line looks like an answer, and the id of its call; 0: neither
// end has it.
func (l *longLine) answers() (id int64, answer bool) {
	g := guess(l.head)
	switch {
	case !g.answer:
		return 0, false
	case g.id != 0:
		return g.id, true
	}
	if m := lastID().FindSubmatch(l.tail); m != nil {
		id, _ = strconv.ParseInt(string(m[1]), 10, 64) // 0 when it is out of range
	}
	return id, g.message || id != 0
}

// lastID finds an id after the result.
var lastID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[}\]]\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?,\s*"id"\s*:\s*([0-9]{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
})
