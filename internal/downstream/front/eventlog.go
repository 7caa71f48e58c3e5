package front

import (
	"math"
	"strconv"
	"sync"
	"time"
)

// The capacity of one event log. When a log that resumes exceeds it, the oldest events are
// dropped; a client that resumes later can detect it by the missing event ids, and rawStream.lost is
// called when one was dropped that a connected client has not got. A log that does not resume drops
// nothing, because its client could not detect it: a sender that can wait waits for room, and
// messages of other senders may exceed the capacity once more before the connection is closed.
const (
	logEvents = 256
	logBytes  = 1 << 20

	// logUnsent is the number of events that a log keeps while the first of them was not sent. A
	// client that is told to look again at 1,000 resources gets an event for each.
	logUnsent = 1280
)

// eventLog holds the messages of one stream in order, with the state that resuming it needs.
// Each message has a sequence number. Each connection has a generation, and only the latest
// may write, so that a new connection can replace a broken one whose end was not noticed. Two
// kinds of connection attach: the answer of a POST, which its own handler writes, and a raw
// connection, which is written by a goroutine that exists only while there is something to
// write.
type eventLog struct {
	number  uint64 // of the stream in its session
	resumes bool   // events have ids, so that the client can resume

	mu      sync.Mutex
	room    sync.Cond // signalled when items were taken, and when a connection or the stream ends
	gen     uint64    // of the connection that may write
	live    bool      // a connection is attached
	raw     *rawStream
	writing bool   // a goroutine writes to raw now
	nudged  bool   // a keep-alive is due on raw
	base    uint64 // sequence number of items[0]; numbers start at 1
	items   [][]byte
	size    int
	pos     uint64 // highest sequence number handed to raw, or unsent
	sent    uint64 // highest sequence number ever written to a client
	ended   bool
	missed  bool // an event was dropped before raw got it
	telling bool // raw.lost runs
}

func newEventLog(number uint64, resumes bool) *eventLog {
	l := &eventLog{number: number, resumes: resumes, base: 1}
	l.room.L = &l.mu
	return l
}

// put appends a message and returns its sequence number. mine reports whether the connection
// gen is still the one that may write, and so has to write the message. A log that does not
// resume and is full closes its connection instead.
func (l *eventLog) put(msg []byte, gen uint64) (seq uint64, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.resumes && l.full() {
		l.abandon()
	}
	return l.add(msg, gen)
}

// putInTurn is put for a sender that can wait: in a log that does not resume it waits until the
// message has room. The wait ends, because each write that the client does not take within
// writeLimit ends the stream.
func (l *eventLog) putInTurn(msg []byte, gen uint64) (seq uint64, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.resumes && !l.ended && !l.fits(msg) {
		l.room.Wait()
	}
	return l.add(msg, gen)
}

// fits reports whether a message has room; the first always has. The caller holds mu.
func (l *eventLog) fits(msg []byte) bool {
	return len(l.items) == 0 || len(l.items) < logEvents && l.size+len(msg) <= logBytes
}

// full reports that the messages after the first, which may have any size, have exceeded the
// capacity twice. The caller holds mu.
func (l *eventLog) full() bool {
	return len(l.items) >= 2*logEvents || len(l.items) > 1 && l.size-len(l.items[0]) > 2*logBytes
}

// abandon ends the stream without the remaining messages. The caller holds mu.
func (l *eventLog) abandon() {
	l.ended, l.items, l.size = true, nil, 0
	if l.raw != nil {
		l.raw.close()
	}
	l.wake()
	l.room.Broadcast()
}

// add appends a message to a stream that has not ended. The caller holds mu.
func (l *eventLog) add(msg []byte, gen uint64) (seq uint64, mine bool) {
	if l.ended {
		return 0, false
	}
	l.items = append(l.items, msg)
	l.size += len(msg)
	seq = l.base + uint64(len(l.items)) - 1
	for l.resumes && l.excessive() {
		l.drop()
	}
	mine = gen != 0 && gen == l.gen
	if mine {
		l.sent = seq
	}
	l.wake()
	return seq, mine
}

// excessive reports whether a log that resumes drops its first event. It never drops the last. The
// caller holds mu.
func (l *eventLog) excessive() bool {
	n := len(l.items)
	return n > 1 && (l.size > logBytes || n > logUnsent || n > logEvents && l.base <= l.sent)
}

// drop drops the first event. The caller holds mu.
func (l *eventLog) drop() {
	got := l.pos
	if got == unsent {
		got = l.sent
	}
	l.missed = l.missed || l.raw != nil && l.base > got && !l.telling
	l.size -= len(l.items[0])
	l.items[0] = nil
	l.items = l.items[1:]
	l.base++
}

// end ends the stream: a raw connection is closed after the remaining messages.
func (l *eventLog) end() {
	l.mu.Lock()
	l.ended = true
	l.wake()
	l.room.Broadcast()
	l.mu.Unlock()
}

// nudge sends a keep-alive on a raw connection.
func (l *eventLog) nudge() {
	l.mu.Lock()
	l.nudged = l.raw != nil
	l.wake()
	l.mu.Unlock()
}

func (l *eventLog) heard() bool {
	l.mu.Lock()
	raw := l.raw
	l.mu.Unlock()
	return raw != nil && raw.heard()
}

// attach makes the answer of a POST the connection that may write.
func (l *eventLog) attach() (gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace()
	return l.gen
}

// replace detaches the current connection. The caller holds mu.
func (l *eventLog) replace() {
	l.gen++
	l.live = true
	if l.raw != nil {
		l.raw.close()
		l.raw = nil
	}
}

// reserve makes a raw connection the one that may write before it is taken over, so that two
// clients cannot both get an answer. It fails if another connection is attached and takeover
// is false. A connection that its client has just closed may end meanwhile.
func (l *eventLog) reserve(takeover bool) (gen uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live && !takeover {
		l.awaitEnd()
	}
	if l.live && !takeover {
		return 0, false
	}
	l.replace()
	return l.gen, true
}

// endTime is how long a new connection waits for the end of the one before it.
const endTime = 500 * time.Millisecond

// awaitEnd waits until no connection is attached, for endTime. The caller holds mu.
func (l *eventLog) awaitEnd() {
	late := false
	timer := time.AfterFunc(endTime, func() {
		l.mu.Lock()
		late = true
		l.mu.Unlock()
		l.room.Broadcast()
	})
	defer timer.Stop()
	for l.live && !late {
		l.room.Wait()
	}
}

// unsent is the position in attachRaw of a connection that gets what no other has got.
const unsent = math.MaxUint64

// attachRaw attaches the connection that reserve announced; it gets the messages after seq.
// ok is false if another connection has reserved meanwhile. gap: some of those messages were
// dropped, or seq is no position of this log.
func (l *eventLog) attachRaw(r *rawStream, gen, seq uint64) (gap, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen != gen {
		return false, false
	}
	from, last := l.sent, l.base+uint64(len(l.items))-1
	if seq != unsent {
		from, seq = seq, min(seq, last)
	}
	l.raw, l.pos, l.missed = r, seq, false
	l.wake()
	return from+1 < l.base || from > last, true
}

func (l *eventLog) detach(gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen == gen {
		l.live, l.raw = false, nil
		l.room.Broadcast()
	}
}

// tell calls lost if the client of the raw connection has missed events. What lost itself adds may
// exceed the capacity again; what is dropped meanwhile is not told again.
func (l *eventLog) tell() {
	l.mu.Lock()
	out := l.raw
	due := l.missed && out != nil && out.lost != nil
	l.missed, l.telling = l.missed && !due, l.telling || due
	l.mu.Unlock()
	if !due {
		return
	}
	out.lost()
	l.mu.Lock()
	l.telling = false
	l.mu.Unlock()
}

// cut closes a raw connection at once.
func (l *eventLog) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != nil {
		l.raw.close()
		l.raw = nil
	}
}

func (l *eventLog) bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// over reports that the call of the stream has ended.
func (l *eventLog) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// spent reports that the stream has ended and that no message comes after a position.
func (l *eventLog) spent(after uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended && after >= l.base+uint64(len(l.items))-1
}

// wake starts a writer if a raw connection has none. The caller holds mu.
func (l *eventLog) wake() {
	if l.raw != nil && !l.writing {
		l.writing = true
		go l.write()
	}
}

// write writes the pending messages to the raw connection and returns. A connection that does
// not take them in time is closed; its reader then detaches it.
func (l *eventLog) write() {
	for {
		out, msgs, first, nudge, last := l.due()
		if out == nil {
			l.tell()
			return
		}
		ok := true
		for i, m := range msgs {
			ok = ok && l.deliver(out, first+uint64(i), m)
		}
		if nudge && len(msgs) == 0 {
			ok = out.comment() == nil
		}
		if nudge {
			out.due.Store(true)
		}
		if last {
			out.finish()
		}
		if !ok || last {
			out.close()
		}
	}
}

// deliver writes one message. A message that could not be written counts as not sent, so that the
// next connection gets it.
func (l *eventLog) deliver(out *rawStream, seq uint64, msg []byte) bool {
	if out.event(l.eventID(seq), msg) != nil {
		return false
	}
	l.mu.Lock()
	l.sent = max(l.sent, seq)
	l.mu.Unlock()
	return true
}

// due takes the messages to write next. A nil connection means that there are none.
func (l *eventLog) due() (out *rawStream, msgs [][]byte, first uint64, nudge, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pos == unsent { // the write to the connection before is over by now
		l.pos = l.sent
	}
	first = max(l.pos+1, l.base)
	i := first - l.base
	fresh := i < uint64(len(l.items))
	if l.raw == nil || !fresh && !l.nudged && !l.ended {
		l.writing = false
		return nil, nil, 0, false, false
	}
	out, nudge, last = l.raw, l.nudged, l.ended
	l.nudged = false
	if fresh {
		msgs = append(msgs, l.items[i:]...)
		l.pos = first + uint64(len(msgs)) - 1
		if !l.resumes { // the client cannot resume, so they are dropped
			l.base += uint64(len(l.items))
			l.items, l.size = nil, 0
			l.room.Broadcast()
		}
	}
	if last {
		l.raw = nil
	}
	return out, msgs, first, nudge, last
}

// eventID encodes stream and position; "" for a stream that cannot be resumed.
func (l *eventLog) eventID(seq uint64) string {
	if !l.resumes {
		return ""
	}
	b := make([]byte, 0, 24)
	b = strconv.AppendUint(b, l.number, 10)
	b = append(b, '-')
	return string(strconv.AppendUint(b, seq, 10))
}
