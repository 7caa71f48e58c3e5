package upstream

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// smallBuffer is the size of the read buffer of an idle connection, in bytes.
const smallBuffer = 512

// Sizes of the pooled buffers that a connection borrows while it reads a longer line, in
// bytes. For a still longer line a buffer is allocated, and passed on with the line.
const (
	midBuffer = 64 << 10
	bigBuffer = 1 << 20
)

var (
	midBuffers = sync.Pool{New: func() any { return new([midBuffer]byte) }}
	bigBuffers = sync.Pool{New: func() any { return new([bigBuffer]byte) }}
)

// lineReader reads newline-delimited messages of at most max bytes.
//
// Its buffer grows and shrinks with the traffic: a small one of its own, larger ones from a
// pool, and for the largest lines one that goes to the caller with the line, so that a big
// result is never copied. When all bytes are used it returns to the small one.
type lineReader struct {
	r       io.Reader
	max     int
	small   []byte
	buf     []byte // small, or a larger one
	start   int    // first unused byte
	end     int    // after the last byte read
	scanned int    // bytes from start that hold no newline
	err     error  // of r, returned when the rest is used
}

func newLineReader(r io.Reader, max int) *lineReader {
	small := make([]byte, smallBuffer)
	return &lineReader{r: r, max: max, small: small, buf: small}
}

// next returns the next line without its newline. owned: its memory belongs to the caller;
// otherwise the line is valid until the following call. The last line needs no newline. A
// line of more than max bytes is skipped, and the error is a *longLine. A line that does not
// end within endless times max bytes is ErrTooLarge, which is final.
func (l *lineReader) next() (line []byte, owned bool, err error) {
	for {
		if at := bytes.IndexByte(l.buf[l.start+l.scanned:l.end], '\n'); at >= 0 {
			return l.cut(l.scanned+at, 1)
		}
		l.scanned = l.end - l.start
		switch {
		case l.scanned > l.max:
			return nil, false, l.pass()
		case l.err != nil && l.scanned > 0:
			return l.cut(l.scanned, 0)
		case l.err != nil:
			return nil, false, l.err
		}
		l.fill()
	}
}

// cut takes n bytes as a line, and skips its terminator.
func (l *lineReader) cut(n, skip int) ([]byte, bool, error) {
	if n > l.max {
		long := newLongLine(l.buf[l.start : l.start+n])
		l.start += n + skip
		l.scanned = 0
		return nil, false, long
	}
	line := l.buf[l.start : l.start+n : l.start+n]
	l.start += n + skip
	l.scanned = 0
	if len(l.buf) > bigBuffer && n >= len(l.buf)/2 {
		l.giveAway()
		return line, true, nil
	}
	return line, false, nil
}

// giveAway leaves the buffer to the line just cut from it, and copies the rest.
func (l *lineReader) giveAway() {
	rest := l.buf[l.start:l.end]
	l.buf = l.borrow(len(rest))
	l.start, l.end = 0, copy(l.buf, rest)
}

// fill makes room and reads once.
func (l *lineReader) fill() {
	rest := l.end - l.start
	switch {
	case rest <= len(l.small) && len(l.buf) > len(l.small):
		l.move(0)
	case l.end < len(l.buf):
	case l.start > 0:
		copy(l.buf, l.buf[l.start:l.end])
		l.start, l.end = 0, rest
	}
	if rest == 0 {
		l.start, l.end = 0, 0
	}
	if l.end == len(l.buf) {
		l.move(2 * len(l.buf))
	}
	var n int
	n, l.err = l.r.Read(l.buf[l.end:])
	l.end += n
}

// move copies the unused bytes into a buffer of at least size bytes that also holds them.
func (l *lineReader) move(size int) {
	rest := l.end - l.start
	next := l.borrow(max(size, rest))
	copy(next, l.buf[l.start:l.end])
	l.giveBack()
	l.buf, l.start, l.end = next, 0, rest
}

func (l *lineReader) borrow(size int) []byte {
	switch {
	case size <= len(l.small):
		return l.small
	case size <= midBuffer:
		return midBuffers.Get().(*[midBuffer]byte)[:]
	case size <= bigBuffer:
		return bigBuffers.Get().(*[bigBuffer]byte)[:]
	}
	return make([]byte, min(size, max(l.max+2, 2*bigBuffer)))
}

func (l *lineReader) giveBack() {
	switch len(l.buf) {
	case midBuffer:
		midBuffers.Put((*[midBuffer]byte)(l.buf))
	case bigBuffer:
		bigBuffers.Put((*[bigBuffer]byte)(l.buf))
	}
	l.buf = l.small
}

// close returns borrowed memory.
func (l *lineReader) close() {
	l.giveBack()
	l.start, l.end, l.scanned = 0, 0, 0
}

const (
	longEnd = 4 << 10 // bytes kept of each end of a long line
	endless = 16      // a line of more than this many times the limit counts as endless
)

// longLine describes a line above the limit: its size, and its two ends.
type longLine struct {
	size       int
	head, tail []byte
}

func (l *longLine) Error() string { return fmt.Sprintf("a line of %d bytes", l.size) }

func newLongLine(b []byte) *longLine {
	return &longLine{size: len(b), head: bytes.Clone(b[:min(len(b), longEnd)]), tail: bytes.Clone(b[max(0, len(b)-longEnd):])}
}

// grow adds the following bytes of the line.
func (l *longLine) grow(b []byte) {
	l.size += len(b)
	l.tail = append(l.tail, b[max(0, len(b)-longEnd):]...)
	if over := len(l.tail) - longEnd; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
}

// pass skips the rest of a line that is too long.
func (l *lineReader) pass() error {
	long := newLongLine(l.buf[l.start:l.end])
	l.giveBack()
	l.start, l.end, l.scanned = 0, 0, 0
	buf := midBuffers.Get().(*[midBuffer]byte)
	l.buf = buf[:]
	for l.err == nil {
		n, err := l.r.Read(l.buf)
		l.err = err
		if at := bytes.IndexByte(l.buf[:n], '\n'); at >= 0 {
			long.grow(l.buf[:at])
			l.start, l.end = at+1, n
			return long
		}
		long.grow(l.buf[:n])
		if long.size/endless > l.max {
			return newFault(ErrTooLarge, fmt.Sprintf("a line of more than %d bytes that does not end", long.size))
		}
	}
	return long
}
