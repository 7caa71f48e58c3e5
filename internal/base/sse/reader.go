package sse

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// ErrTooLarge is the error of a stream whose next event or line exceeds the limit.
var ErrTooLarge = errors.New("server-sent event too large")

// Reader reads an event stream by the grammar of the HTML standard,
// section 9.2.6: lines end in CR, LF or CRLF, the stream may begin with one byte order
// mark, unknown fields and comments are skipped, an event that is not complete at the end
// of the stream is dropped.
//
// Data lines are joined in place in the read buffer, so a large event
// is not copied again. The buffer holds at most about four times the limit.
type Reader struct {
	r        io.Reader
	max      int
	buf      []byte
	data     span  // data of the current event so far, in buf
	at       int   // buf[at:] is not consumed
	searched int   // number of bytes of buf[at:] known to hold no line end
	skipLF   bool  // the last line ended in CR: an LF that follows belongs to it
	started  bool  // the first line was read
	err      error // error of r, returned when buf is used up
}

// span is a part of the buffer, from start to before end.
type span struct{ start, end int }

const (
	// maxFieldName is the number of bytes that a line may have in addition to the event
	// limit: the field's name, the colon, a space.
	maxFieldName = 64
	// keepBuffer is the largest buffer that a reader keeps between events: streams
	// are many, long-lived and mostly idle.
	keepBuffer = 64 << 10
	// readChunk is the smallest buffer.
	readChunk = 1 << 10
)

// NewReader reads events from r whose data is at most maxEvent bytes.
func NewReader(r io.Reader, maxEvent int) *Reader {
	return &Reader{r: r, max: maxEvent}
}

// Next returns the next event with data, an id or a retry time. Events without data are
// included because MCP servers prime a stream with an id alone. Data is valid until the
// next call. The error is io.EOF at the end of the stream, ErrTooLarge, or that of the
// underlying reader; later calls return it again.
func (e *Reader) Next() (Event, error) {
	for {
		if ev, ok, err := e.Step(); ok || err != nil {
			return ev, err
		}
	}
}

// Step is Next, but it also returns after an empty line without an event before it, as after a
// comment. ok is false then.
func (e *Reader) Step() (ev Event, ok bool, err error) {
	e.data = span{}
	ev = Event{Retry: -1}
	hasData := false
	for {
		line, err := e.line()
		if err != nil {
			return Event{}, false, err
		}
		switch name, value := e.cut(line); {
		case line.start == line.end && (hasData || ev.HasID || ev.Retry >= 0):
			if hasData {
				ev.Data = e.buf[e.data.start:e.data.end:e.data.end]
			}
			return ev, true, nil
		case line.start == line.end:
			return ev, false, nil
		case name != "data":
			ev.set(name, e.buf[value.start:value.end])
		default:
			if !e.join(value, hasData) {
				return Event{}, false, e.fail(ErrTooLarge)
			}
			hasData = true
		}
	}
}

// Rest releases the buffer between two events. False: there is data that was not returned, or an
// error.
func (e *Reader) Rest() bool {
	if e.at < len(e.buf) || e.err != nil {
		return false
	}
	e.buf, e.data, e.at, e.searched = nil, span{}, 0, 0
	return true
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

// join appends a line to the data, which is before it in the buffer. The field name
// between the two leaves room for the line feed. false: the data exceeds the limit.
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

// set sets a field other than data.
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

// milliseconds parses ASCII digits; false: value has another character or exceeds int.
func milliseconds(value []byte) (int, bool) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	ms, err := strconv.Atoi(string(value))
	return ms, err == nil
}

// fail ends the stream: all later calls return err. It releases the buffer.
func (e *Reader) fail(err error) error {
	*e = Reader{err: err, max: e.max}
	return err
}

// line returns the next line without its end, valid until the next call. It never
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

// fill reads more bytes into the buffer.
func (e *Reader) fill() {
	e.makeRoom()
	for range 100 { // as in bufio: a Read may return 0 bytes without an error, but not forever
		n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
		if e.err = err; n > 0 || err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}

// makeRoom makes room for a read at the end of the buffer. If there is too little, it moves
// the bytes in use to the front, or into a buffer of twice the size. A large buffer without
// bytes in use is replaced by a small one.
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
