//go:build unix

package process

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Limits of what a server may make the daemon log.
const (
	maxLine        = 1024 // bytes of one line, before escaping
	linesPerMinute = 300
)

// stderrBuffers are shared by all readers, so that a silent child holds none.
var stderrBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// stderrReader reads a server's standard error to its end, so that the server never blocks on it, and delivers lines
// within the limits.
type stderrReader struct {
	file     *os.File
	lines    lineSink
	bytes    atomic.Int64
	withheld atomic.Int64
}

func newStderrReader(fd int, deliver func(string)) *stderrReader {
	r := &stderrReader{file: os.NewFile(uintptr(fd), "stderr")}
	r.lines = lineSink{deliver: deliver, now: time.Now, withheld: &r.withheld}
	return r
}

// run reads until the end, or until the deadline of expire.
func (r *stderrReader) run() {
	defer r.file.Close()
	defer r.lines.end()
	conn, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	for more := true; more && err == nil; {
		err = conn.Read(func(fd uintptr) (ready bool) {
			ready, more = r.read(int(fd))
			return ready
		})
	}
}

// expire sets a deadline for an end of file that may not come.
func (r *stderrReader) expire(after time.Duration) { _ = r.file.SetReadDeadline(time.Now().Add(after)) }

// read takes one bufferful. ready is false if there is nothing to read yet; more is false at the end.
func (r *stderrReader) read(fd int) (ready, more bool) {
	buf := stderrBuffers.Get().(*[16 << 10]byte)
	defer stderrBuffers.Put(buf)
	n, err := unix.Read(fd, buf[:])
	switch {
	case err == unix.EAGAIN:
		return false, true
	case err == unix.EINTR:
		return true, true
	case err != nil || n == 0:
		return true, false
	}
	r.bytes.Add(int64(n))
	r.lines.write(buf[:n])
	return true, true
}

// lineSink cuts a stream into lines and delivers them within the limits.
type lineSink struct {
	deliver  func(string)
	now      func() time.Time
	withheld *atomic.Int64

	line    []byte // the line so far, at most maxLine
	cut     bool   // the line was too long: its start is delivered, the rest is skipped
	window  time.Time
	sent    int   // lines delivered in this window
	dropped int64 // lines withheld in this window
}

func (s *lineSink) write(b []byte) {
	for len(b) > 0 {
		chunk, rest, whole := b, []byte(nil), false
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			chunk, rest, whole = b[:i], b[i+1:], true
		}
		s.add(chunk)
		if whole {
			s.finish()
		}
		b = rest
	}
}

func (s *lineSink) add(b []byte) {
	if s.cut {
		return
	}
	room := maxLine - len(s.line)
	s.line = append(s.line, b[:min(room, len(b))]...)
	if len(b) > room {
		s.emit(" (cut)")
		s.cut = true
	}
}

func (s *lineSink) finish() {
	if !s.cut {
		s.emit("")
	}
	s.cut = false
}

// emit delivers the line so far, unless the limit of this minute is reached.
func (s *lineSink) emit(suffix string) {
	line := s.line
	s.line = s.line[:0]
	s.roll()
	if s.sent >= linesPerMinute {
		s.dropped++
		s.withheld.Add(1)
		return
	}
	s.sent++
	if s.deliver != nil {
		s.deliver(plaintext.Line(strings.TrimSuffix(string(line), "\r")) + suffix)
	}
}

func (s *lineSink) roll() {
	now := s.now()
	if !s.window.IsZero() && now.Sub(s.window) < time.Minute {
		return
	}
	s.confess()
	s.window, s.sent = now, 0
}

// confess delivers the number of withheld lines, so that no loss is silent.
func (s *lineSink) confess() {
	if s.dropped > 0 && s.deliver != nil {
		s.deliver(fmt.Sprintf("(%d further lines withheld)", s.dropped))
	}
	s.dropped = 0
}

func (s *lineSink) end() {
	if len(s.line) > 0 {
		s.emit("")
	}
	s.confess()
}
