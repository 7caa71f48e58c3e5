package sse

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// ErrTooLarge ends a stream whose next event or line is over the limit.
var ErrTooLarge = errors.New("server-sent event too large")

// Reader reads an event stream by the grammar of the HTML standard,
// section 9.2.6: lines end in CR, LF or CRLF, one byte order mark may come
// first, unknown fields and comments are skipped, an event that the stream
// ends in the middle of is dropped.
//
// Data lines are joined where they lie, in the read buffer, so a large event
// is not copied again. The buffer holds at most about four times the limit.
type Reader struct {
	r        io.Reader
	max      int
	buf      []byte
	data     span // data of the current event so far, in buf
	at       int  // buf[at:] is not consumed
	searched int  // bytes of buf[at:] known to hold no line end
	skipLF   bool // the last line ended in CR: an LF that follows belongs to it
	started  bool
	err      error // of r, once buf is used up
}

// span is a part of the buffer, from start to before end.
type span struct{ start, end int }

const (
	// maxFieldName is what a line may have on top of the event limit: the
	// field's name, the colon, a space.
	maxFieldName = 64
	// keepBuffer is the memory that a reader keeps between events: streams
	// are many, long-lived and mostly idle.
	keepBuffer = 64 << 10
	// readChunk is the least memory to read into.
	readChunk = 1 << 10
)

// NewReader reads events from r whose data is at most maxEvent bytes.
func NewReader(r io.Reader, maxEvent int) *Reader {
	return &Reader{r: r, max: maxEvent}
}

// Next reads the next event: one that has data, an id or a retry time, so that
// priming events are seen. Data is valid until the next call. The error is
// io.EOF at the end of the stream, ErrTooLarge, or the reader's own; it
// stays.
func (e *Reader) Next() (Event, error) {
	e.data = span{}
	ev := Event{Retry: -1}
	hasData := false
	for {
		line, err := e.line()
		if err != nil {
			return Event{}, err
		}
		switch name, value := e.cut(line); {
		case line.start == line.end && (hasData || ev.HasID || ev.Retry >= 0):
			if hasData {
				ev.Data = e.buf[e.data.start:e.data.end:e.data.end]
			}
			return ev, nil
		case line.start == line.end:
			ev = Event{Retry: -1}
		case name != "data":
			ev.set(name, e.buf[value.start:value.end])
		default:
			if !e.join(value, hasData) {
				return Event{}, e.fail(ErrTooLarge)
			}
			hasData = true
		}
	}
}

// cut splits a line into the field's name and value; the name is "" for a comment
// or an unknown field.
func (e *Reader) cut(line span) (name string, value span) {
	text := e.buf[line.start:line.end]
	colon := bytes.IndexByte(text[:min(len(text), maxFieldName)], ':')
	if colon < 0 {
		colon = len(text)
	}
	value = span{min(line.start+colon+1, line.end), line.end}
	if value.start < value.end && e.buf[value.start] == ' ' {
		value.start++
	}
	switch string(text[:colon]) {
	case "data":
		return "data", value
	case "event":
		return "event", value
	case "id":
		return "id", value
	case "retry":
		return "retry", value
	}
	return "", value
}

// join adds a line to the data, which lies before it in the buffer, with room
// in between for the line feed: at least the field's name was there.
func (e *Reader) join(value span, hasData bool) bool {
	if !hasData {
		e.data = value
	} else {
		e.buf[e.data.end] = '\n'
		n := copy(e.buf[e.data.end+1:], e.buf[value.start:value.end])
		e.data.end += 1 + n
	}
	return e.data.end-e.data.start <= e.max
}

// set takes a field other than data.
func (ev *Event) set(name string, value []byte) {
	switch name {
	case "event":
		ev.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			ev.ID, ev.HasID = string(value), true
		}
	case "retry":
		if ms, ok := milliseconds(value); ok {
			ev.Retry = ms
		}
	}
}

// milliseconds reads ASCII digits alone; a number beyond int is no number.
func milliseconds(value []byte) (int, bool) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	ms, err := strconv.Atoi(string(value))
	return ms, err == nil
}

// fail ends the stream for good.
func (e *Reader) fail(err error) error {
	*e = Reader{err: err, max: e.max}
	return err
}

// line is the next line without its end, valid until the next call. It never
// waits for a byte behind the line end.
func (e *Reader) line() (span, error) {
	for {
		e.dropLF()
		rest := e.buf[e.at:]
		n := lineEnd(rest[e.searched:])
		ended := n >= 0
		if ended {
			n += e.searched
		} else {
			n = len(rest)
		}
		switch {
		case n > e.max+maxFieldName:
			return span{}, e.fail(ErrTooLarge)
		case ended:
			return e.take(n), nil
		}
		e.searched = n
		if e.err != nil {
			return span{}, e.fail(e.err)
		}
		e.fill()
	}
}

// dropLF drops the second half of a CRLF.
func (e *Reader) dropLF() {
	if e.skipLF && e.at < len(e.buf) {
		if e.buf[e.at] == '\n' {
			e.at++
		}
		e.skipLF = false
	}
}

// take consumes a line of n bytes and its end.
func (e *Reader) take(n int) span {
	line := span{e.at, e.at + n}
	e.skipLF = e.buf[line.end] == '\r'
	e.at, e.searched = line.end+1, 0
	if !e.started {
		e.started = true
		if bytes.HasPrefix(e.buf[line.start:line.end], []byte("\uFEFF")) {
			line.start += len("\uFEFF")
		}
	}
	return line
}

// fill reads more, behind what is not consumed.
func (e *Reader) fill() {
	e.makeRoom()
	for range 100 { // as bufio does: a reader may return nothing now and then, not for ever
		n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
		if e.err = err; n > 0 || err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}

// makeRoom leaves room for a read: at the end of the buffer while there is
// some, else by moving what is still wanted to the front, else in twice as
// much memory; and in little again when a long line is over.
func (e *Reader) makeRoom() {
	data, rest := e.buf[e.data.start:e.data.end], e.buf[e.at:]
	wanted := len(data) + len(rest)
	var room []byte
	switch {
	case wanted == 0 && cap(e.buf) > keepBuffer:
		room = make([]byte, 0, readChunk)
	case cap(e.buf)-len(e.buf) >= readChunk/4:
		return
	case cap(e.buf) < readChunk || wanted > cap(e.buf)/2:
		room = make([]byte, 0, max(readChunk, 2*cap(e.buf)))
	default:
		room = e.buf[:0]
	}
	e.buf = append(append(room, data...), rest...)
	e.data, e.at = span{0, len(data)}, len(data)
}
