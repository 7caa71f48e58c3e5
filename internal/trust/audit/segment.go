package audit

// The segments as files. Invariant: what is cut off the newest segment is no
// whole line, or stands behind a hole that a power loss left behind the last
// checkpoint.

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// SegmentPath is the file of segment n of the log in dir, counted from 1.
func SegmentPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.jsonl", n))
}

// SegmentNumber is the inverse of SegmentPath for a file's name; 0: no segment.
func SegmentNumber(name string) int {
	digits, ok := strings.CutSuffix(name, ".jsonl")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || fmt.Sprintf("%08d", n) != digits {
		return 0
	}
	return n
}

// segments lists the numbers of dir's segments, ascending. Nothing says that
// they are without a gap. A missing directory is fs.ErrNotExist.
func segments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the audit segments: %w", err)
	}
	var ns []int
	for _, e := range entries {
		if n := SegmentNumber(e.Name()); n > 0 {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// lacks is the number of the first segment that ns, ascending from first, does
// not have before its last one; 0 when none is missing.
func lacks(ns []int, first int) int {
	for i, n := range ns {
		if n != first+i {
			return first + i
		}
	}
	return 0
}

func openSegment(dir string, n int) (*os.File, error) {
	return os.OpenFile(SegmentPath(dir, n), os.O_RDONLY|NoFollow, 0)
}

// lastLine returns the last line of the first end bytes of r, which end with a
// newline; nil: there is none. A line longer than MaxLine is ErrDamaged.
func lastLine(r io.ReaderAt, end int64) ([]byte, error) {
	if end == 0 {
		return nil, nil
	}
	part := make([]byte, min(end, MaxLine+1))
	if err := readAt(r, part, end-int64(len(part))); err != nil {
		return nil, err
	}
	text := part[:len(part)-1]
	cut := bytes.LastIndexByte(text, '\n') + 1
	if cut == 0 && end > MaxLine {
		return nil, fmt.Errorf("%w: a line is longer than %d bytes", ErrDamaged, MaxLine)
	}
	return text[cut:], nil
}

// LastNewline returns the offset after the last newline in the first size bytes.
// The bytes after it are the beginning of a line that was never finished, of any
// length: after a power loss they may be a stretch of zeros.
func LastNewline(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, MaxLine)
	for end := size; end > 0; {
		part := buf[:min(end, MaxLine)]
		end -= int64(len(part))
		if err := readAt(r, part, end); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return end + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// holeChunk is how much of the end is looked at at once; several lines fit in.
const holeChunk = 4 * MaxLine

// withoutHoles returns the offset up to which the first size bytes have no hole
// behind the record that was on the disk for certain. A power loss may keep what
// was written later and lose what was written before: there are zeros then, and
// no record has one. size is the end of a line, or 0.
func withoutHoles(r io.ReaderAt, size int64, synced uint64) (int64, error) {
	buf := make([]byte, holeChunk)
	cut := size
	for end := size; end > 0; {
		part := buf[:min(end, holeChunk)]
		end -= int64(len(part))
		if err := readAt(r, part, end); err != nil {
			return 0, err
		}
		if i := bytes.IndexByte(part, 0); i >= 0 {
			cut = end + int64(i)
		}
		if firstNumber(part, end == 0) <= synced {
			break
		}
	}
	if cut == size {
		return size, nil
	}
	return LastNewline(r, cut)
}

// firstNumber returns the number of the first whole record in part of a segment,
// or a number above all when there is none. first: part is the beginning of the
// segment.
func firstNumber(part []byte, first bool) uint64 {
	for whole := first; len(part) > 0; whole = true {
		text, rest, ok := bytes.Cut(part, []byte{'\n'})
		if !ok {
			break
		}
		if l, ok := ParseLine(text); ok && whole {
			return l.Seq
		}
		part = rest
	}
	return math.MaxUint64
}

func readAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	return nil
}
