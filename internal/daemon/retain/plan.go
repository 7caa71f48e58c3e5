// Package retain removes the oldest part of the audit log, and keeps archives of it.
//
// Invariant: only whole segments are removed, the oldest first, never the open one, and
// none before a signed beginning behind it is on the disk. A process that ends at any
// moment leaves a log that verifies; Finish removes the rest.
package retain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// Bounds are how much of the log is kept.
type Bounds struct {
	Before time.Time // segments whose last record is older are removed; zero: no bound
	Bytes  int64     // most bytes of all files of the log; negative: no bound
	Closed bool      // never remove the open segment
}

// Plan is what a prune removes.
type Plan struct {
	Through  int       // the last segment to remove; 0: none
	Turn     bool      // the open segment is among them: a new one must be opened first
	Segments int       // how many are removed
	Records  uint64    // in them
	Bytes    int64     // of them
	Last     time.Time // of their last record
}

// segment is one file of the log.
type segment struct {
	number int
	path   string
	bytes  int64
}

// Plan looks at the log in dir. It opens only the segments that it may remove.
func (b Bounds) Plan(dir string, now time.Time) (p Plan, err error) {
	all, total, begin, err := sizes(dir)
	if err != nil || len(all) == 0 {
		return p, err
	}
	seq := begin.Seq
	for i, s := range all {
		end, err := endOf(s)
		if err != nil {
			return p, err
		}
		old := b.Bytes >= 0 && total > b.Bytes || end.Time.Before(b.Before)
		if !old || end.Seq == 0 {
			break
		}
		if i == len(all)-1 {
			p.Turn = !b.Closed && (b.Bytes >= 0 && total > b.Bytes || b.Before.After(now))
			if !p.Turn {
				break
			}
		}
		p.Through, p.Segments, p.Last = s.number, i+1, end.Time
		p.Bytes += s.bytes
		p.Records, total = end.Seq-seq, total-s.bytes
	}
	return p, nil
}

// sizes lists the segments and sums up the bytes of the log on the disk.
func sizes(dir string) (all []segment, total int64, begin audit.Beginning, err error) {
	numbers, begin, err := audit.Segments(dir, nil)
	if err != nil {
		return nil, 0, begin, err
	}
	if fi, err := os.Stat(filepath.Join(dir, "checkpoints")); err == nil {
		total = fi.Size()
	}
	for _, n := range numbers {
		s := segment{number: n, path: audit.SegmentPath(dir, n)}
		fi, err := os.Lstat(s.path)
		if err != nil {
			return nil, 0, begin, fmt.Errorf("looking at the audit log: %w", err)
		}
		s.bytes = fi.Size()
		total += s.bytes
		all = append(all, s)
	}
	return all, total, begin, nil
}

// end is the head of a record.
type end struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
}

// endOf is the last finished record of a segment; zero: it has none.
func endOf(s segment) (e end, err error) {
	f, err := os.Open(s.path)
	if err != nil {
		return e, fmt.Errorf("looking at the audit log: %w", err)
	}
	defer f.Close()
	tail := make([]byte, min(s.bytes, 2*audit.MaxLine))
	if _, err := f.ReadAt(tail, s.bytes-int64(len(tail))); err != nil && err != io.EOF {
		return e, fmt.Errorf("looking at the audit log: %w", err)
	}
	tail = tail[:bytes.LastIndexByte(tail, '\n')+1]
	if len(tail) == 0 {
		return e, nil
	}
	line := tail[bytes.LastIndexByte(tail[:len(tail)-1], '\n')+1:]
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("%w: %s does not end with a record: %w", audit.ErrDamaged, filepath.Base(s.path), err)
	}
	return e, nil
}

// Opened returns when the open segment of the log in dir began, and its size. began is
// zero when the segment has no record.
func Opened(dir string) (began time.Time, size int64, err error) {
	all, _, _, err := sizes(dir)
	if err != nil || len(all) == 0 {
		return began, 0, err
	}
	last := all[len(all)-1]
	f, err := os.Open(last.path)
	if err != nil {
		return began, 0, fmt.Errorf("looking at the audit log: %w", err)
	}
	defer f.Close()
	var e end
	if err := json.NewDecoder(io.LimitReader(f, audit.MaxLine)).Decode(&e); err != nil {
		return began, last.bytes, nil // nothing whole yet
	}
	return e.Time, last.bytes, nil
}
