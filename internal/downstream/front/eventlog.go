package front

import (
	"strconv"
	"sync"
)

// The capacity of one event log. When it is exceeded the oldest events are
// dropped; a client that was away longer sees it by the missing event ids.
const (
	logEvents = 256
	logBytes  = 1 << 20
)

// eventLog is the messages of one stream in order, with what is needed to
// resume it: each message has a sequence number, and the connection that may
// write is counted, so that a later one can take over from one that died
// unnoticed. Two kinds of connection attach: the answer of a POST, which its
// own handler writes, and a raw one, which is written whenever there is
// something to write and costs no goroutine while there is not.
type eventLog struct {
	number  uint64 // of the stream in its session
	resumes bool   // event ids are sent, so that the client can come back

	mu      sync.Mutex
	gen     uint64 // of the connection that may write
	live    bool   // a connection is attached
	raw     *rawStream
	writing bool   // a goroutine writes to raw now
	nudged  bool   // a keep-alive is due on raw
	base    uint64 // sequence number of items[0]; numbers start at 1
	items   [][]byte
	size    int
	pos     uint64 // highest sequence number handed to raw
	sent    uint64 // highest sequence number ever written to a client
	ended   bool
}

func newEventLog(number uint64, resumes bool) *eventLog {
	return &eventLog{number: number, resumes: resumes, base: 1}
}

// put appends a message and returns its sequence number, and whether the
// connection gen may still write it itself.
func (l *eventLog) put(msg []byte, gen uint64) (seq uint64, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, false
	}
	l.items = append(l.items, msg)
	l.size += len(msg)
	seq = l.base + uint64(len(l.items)) - 1
	for len(l.items) > 1 && (len(l.items) > logEvents || l.size > logBytes) {
		l.size -= len(l.items[0])
		l.items[0] = nil
		l.items = l.items[1:]
		l.base++
	}
	mine = gen != 0 && gen == l.gen
	if mine {
		l.sent = seq
	}
	l.wake()
	return seq, mine
}

// end says that nothing follows: a raw connection closes after what is left.
func (l *eventLog) end() {
	l.mu.Lock()
	l.ended = true
	l.wake()
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

// attach makes the answer of a POST the one connection that may write.
func (l *eventLog) attach() (gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace()
	return l.gen
}

// replace detaches the current reader. The caller holds mu.
func (l *eventLog) replace() {
	l.gen++
	l.live = true
	if l.raw != nil {
		l.raw.close()
		l.raw = nil
	}
}

// reserve returns the right to write to a raw connection that is about to be
// taken over: before its client sees an answer, so that two cannot both get
// one. It fails when another is attached and takeover is false.
func (l *eventLog) reserve(takeover bool) (gen uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live && !takeover {
		return 0, false
	}
	l.replace()
	return l.gen, true
}

// attachRaw puts the connection in its reserved place; from after seq on it
// gets what there is. False when another has taken over meanwhile.
func (l *eventLog) attachRaw(r *rawStream, gen, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen != gen {
		return false
	}
	l.raw, l.pos = r, seq
	l.wake()
	return true
}

func (l *eventLog) detach(gen uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen == gen {
		l.live, l.raw = false, nil
	}
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

func (l *eventLog) lastSent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// wake starts a writer when there is a raw connection without one. The caller
// holds mu.
func (l *eventLog) wake() {
	if l.raw != nil && !l.writing {
		l.writing = true
		go l.write()
	}
}

// write writes what is due to the raw connection and goes away. A connection
// that does not take it in time is closed; its reader then detaches it.
func (l *eventLog) write() {
	for {
		out, msgs, first, nudge, last := l.due()
		if out == nil {
			return
		}
		ok := true
		for i, m := range msgs {
			ok = ok && out.event(l.eventID(first+uint64(i)), m) == nil
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

// due takes what has to be written next. A nil connection means nothing.
func (l *eventLog) due() (out *rawStream, msgs [][]byte, first uint64, nudge, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
		l.sent = max(l.sent, l.pos)
		if !l.resumes { // nobody can ask for these again
			l.base += uint64(len(l.items))
			l.items, l.size = nil, 0
		}
	}
	if last {
		l.raw = nil
	}
	return out, msgs, first, nudge, last
}

// eventID names stream and position; "" for a stream that cannot be resumed.
func (l *eventLog) eventID(seq uint64) string {
	if !l.resumes {
		return ""
	}
	b := make([]byte, 0, 24)
	b = strconv.AppendUint(b, l.number, 10)
	b = append(b, '-')
	return string(strconv.AppendUint(b, seq, 10))
}
