//go:build unix

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reportFD is the write end of the pipe on which the stages of a contained server send notes to the daemon.
const reportFD = 4

// note is one line in that pipe: first the measures or the reason why nothing was started, later perhaps the limit
// for which the server was ended.
type note struct {
	Measures []Measure `json:"measures,omitempty"`
	Error    string    `json:"error,omitempty"`
	Astray   bool      `json:"astray,omitempty"`   // the error is about the configuration's paths, not this system
	Building bool      `json:"building,omitempty"` // no result yet: the file systems of its paths answer slowly
	Limit    string    `json:"limit,omitempty"`    // the limit that was exceeded, and by how much
}

// tell sends one note. A failed write means that the daemon is gone.
func tell(n note) {
	b, err := json.Marshal(n)
	if err != nil { // impossible: the fields are numbers and texts
		return
	}
	_, _ = unix.Write(reportFD, append(b, '\n'))
}

// reportPatience bounds how long it may take to contain a server, and the time between two notes meanwhile. On a
// machine that is not overloaded it takes milliseconds.
const reportPatience = 20 * time.Second

// reportReader reads the notes without a goroutine: Start waits for the first one, and the last one is read after the
// end.
type reportReader struct {
	mode   string
	file   *os.File
	unsent error // the plan has not reached the stage, which reports nothing then
	holds  atomic.Pointer[[]Measure]

	mu   sync.Mutex // Process.ended may read while the first note is waited for
	rest []byte     // read but not parsed yet
}

func newReportReader(fd int, mode string) *reportReader {
	return &reportReader{mode: mode, file: os.NewFile(uintptr(fd), "report")}
}

// measures returns nil before the first note.
func (r *reportReader) measures() []Measure {
	if m := r.holds.Load(); m != nil {
		return *m
	}
	return nil
}

// first waits until the server is contained. A nil reader returns nil at once.
func (r *reportReader) first() error {
	if r == nil {
		return nil
	}
	if r.unsent != nil {
		return fmt.Errorf("%w: %w", ErrNotContained, r.unsent)
	}
	n, err := r.next(reportPatience)
	for err == nil && n.Building {
		n, err = r.next(reportPatience)
	}
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the process that had to contain the server ended without a report", ErrNotContained)
	case err != nil:
		return fmt.Errorf("%w: waiting for the server to be contained: %w", ErrNotContained, err)
	case n.Astray:
		return fmt.Errorf("%w: %s", ErrNotContained, n.Error)
	case n.Error != "":
		return fmt.Errorf("%w: %s is not available on this system: %s", ErrNotContained, r.mode, n.Error)
	}
	r.holds.Store(&n.Measures)
	return nil
}

// share stores equal measures only once for all processes of a server.
func (r *reportReader) share(server string, all *sync.Map) {
	if r == nil {
		return
	}
	own := r.holds.Load()
	kept, known := all.LoadOrStore(server, own)
	switch {
	case known && slices.Equal(*kept.(*[]Measure), *own):
		r.holds.Store(kept.(*[]Measure))
	case known:
		all.Store(server, own)
	}
}

// last returns the limit that the server was ended for; empty: none. At this time no stage is left that could write
// more.
func (r *reportReader) last() string {
	if r == nil {
		return ""
	}
	defer r.file.Close()
	n, err := r.next(time.Second) // a foreign process may hold the other end
	if err != nil {
		return ""
	}
	return n.Limit
}

// next reads a note. After an error there are no further ones.
func (r *reportReader) next(patience time.Duration) (note, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.file.SetReadDeadline(time.Now().Add(patience)) // a pipe in the poller has deadlines
	line, err := r.line()
	if err != nil {
		return note{}, err
	}
	var n note
	if err := json.Unmarshal(line, &n); err != nil {
		return note{}, fmt.Errorf("reading a note: %w", err)
	}
	return n, nil
}

// longestNote bounds the bytes that the daemon reads. The stages run the daemon's own code, but nothing is read
// without a bound.
const longestNote = 64 << 10

// line keeps no buffer between notes, because they are far apart in time.
func (r *reportReader) line() ([]byte, error) {
	for len(r.rest) < longestNote {
		if line, rest, ok := bytes.Cut(r.rest, []byte("\n")); ok {
			r.rest = bytes.Clone(rest)
			return line, nil
		}
		chunk := make([]byte, 4096)
		n, err := r.file.Read(chunk)
		r.rest = append(r.rest, chunk[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("a note is too long")
}
