// Package retain removes the oldest part of the audit log, and makes archives of it.
//
// Invariant: only whole segments are removed, the oldest first, never the open one, and only
// after a signed beginning of the remaining log is on the disk. If the process ends at any
// moment, the log still verifies; Finish removes the remaining files.
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

// Bounds defines how much of the log is kept.
type Bounds struct {
	Before time.Time // segments whose last record is older are removed; zero: no bound
	Bytes  int64     // largest size of all files of the log; negative: no bound
	Closed bool      // never remove the open segment
}

// Plan describes what a prune removes.
type Plan struct {
	Through  int       // the last segment to remove; 0: none
	Turn     bool      // the open segment is among them: a new one must be opened first
	Segments int       // number of removed segments
	Records  uint64    // number of removed records
	Bytes    int64     // size of the removed segments
	Last     time.Time // time of the last removed record
}

// segment is one file of the log.
type segment struct {
	number int
	path   string
	bytes  int64
}

// Plan computes a prune of the log in dir. It opens only segments that it may remove, and
// those in front of them whose last record is later than now: the clock was wrong when they
// were written, so their age is that of the segments behind them.
func (b Bounds) Plan(dir string, now time.Time) (p Plan, err error) {
	all, total, begin, err := sizes(dir)
	if err != nil || len(all) == 0 {
		return p, err
	}
	var bytes int64
	for i, s := range all {
		end, err := endOf(s)
		if err != nil {
			return p, err
		}
		old := b.Bytes >= 0 && total > b.Bytes || end.Time.Before(b.Before)
		if end.Seq == 0 || !old && !end.Time.After(now) {
			break
		}
		bytes, total = bytes+s.bytes, total-s.bytes
		if !old {
			continue
		}
		if i == len(all)-1 {
			p.Turn = !b.Closed && (b.Bytes >= 0 && total+s.bytes > b.Bytes || b.Before.After(now))
			if !p.Turn {
				break
			}
		}
		p.Through, p.Segments, p.Last = s.number, i+1, end.Time
		p.Bytes, p.Records = bytes, end.Seq-begin.Seq
	}
	return p, nil
}

// sizes lists the segments and sums up the size of the log on the disk.
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

// end is the beginning of a record.
type end struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
}

// endOf returns the last complete record of a segment; zero: there is none.
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

// Opened returns the time when the open segment of the log in dir began, and its size. began
// is zero if the segment has no record.
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
		return began, last.bytes, nil // no complete record yet
	}
	return e.Time, last.bytes, nil
}
