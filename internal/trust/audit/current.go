package audit

// The segment that is written to. Invariant: either the file ends at size, or uncut is
// set and nothing is written before the rest is cut off.

import (
	"errors"
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/base/durable"
)

// segment is the file that records are appended to.
type segment struct {
	file    *os.File // only the leader changes it, under mu and syncMu
	number  int
	size    int64   // length up to the end of the last record
	uncut   bool    // there may be bytes behind size; they must be cut off before a write
	callers callers // those that this segment has in full
	out     []byte  // buffer of lines
}

// lines returns the lines of groups, which follow those up to last, and the tip behind them.
// The lines are valid until the next call.
func (s *segment) lines(last tip, groups ...*group) ([]byte, tip) {
	out := s.out[:0]
	for _, g := range groups {
		for _, it := range g.items {
			out = appendLine(out, it.body, &last, &s.callers)
		}
	}
	if s.out = out; cap(out) > maxKept {
		s.out = nil
	}
	return out, last
}

// write appends lines. After a failure it cuts off what was written of them.
func (s *segment) write(lines []byte) error {
	_, err := s.file.Write(lines) // an error also when only a part was written
	if err != nil {
		s.cut()
	}
	return err
}

// cut drops the bytes after the last record. If that fails, it sets uncut, which blocks
// writes until mend succeeds.
func (s *segment) cut() { s.uncut = cutBack(s.file, s.size) != nil }

// mend cuts off what an earlier cut could not.
func (s *segment) mend() error {
	if !s.uncut {
		return nil
	}
	if err := cutBack(s.file, s.size); err != nil {
		return fmt.Errorf("cutting off what a failed write left: %w", err)
	}
	s.uncut = false
	return nil
}

// cutBack shortens f to size. It never lengthens f: a shorter file was changed by
// another program, and padding it with zeros would not repair it.
func cutBack(f *os.File, size int64) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < size {
		return fmt.Errorf("%w: %s was shortened by another process", ErrDamaged, f.Name())
	}
	if fi.Size() == size {
		return nil
	}
	return f.Truncate(size)
}

// inPlace returns an error if f was removed, is shorter than end, or if another file is at its
// path. A path without a file may be that of a directory that was moved, and comes back.
func inPlace(f *os.File, end int64) error {
	fi, err := f.Stat()
	there, away := os.Lstat(f.Name())
	if err == nil && (durable.Removed(fi) || away == nil && !os.SameFile(fi, there) || fi.Size() < end) {
		err = fmt.Errorf("%w: %s was removed, replaced or shortened by another process", ErrDamaged, f.Name())
	}
	return err
}

// create creates the file of a new segment. A file that already has content is ErrDamaged.
func create(dir string, number int) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | durable.NoFollow
	f, err := os.OpenFile(SegmentPath(dir, number), flags, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() > 0 {
		err = fmt.Errorf("%w: %s exists already", ErrDamaged, f.Name())
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
