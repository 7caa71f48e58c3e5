package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// segmentPath is the file of segment n, counted from 1.
func segmentPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.jsonl", n))
}

// segmentNumber is the inverse of segmentPath for a file's name; 0: no segment.
func segmentNumber(name string) int {
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
		if n := segmentNumber(e.Name()); n > 0 {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// firstGap is the number of the first segment that ns, ascending from first,
// lacks before its last one; 0 when none is missing.
func firstGap(ns []int, first int) int {
	for i, n := range ns {
		if n != first+i {
			return first + i
		}
	}
	return 0
}

func openSegment(dir string, n int) (*os.File, error) {
	return os.OpenFile(segmentPath(dir, n), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
}

// lastLines returns up to n complete lines from the end of the first size bytes
// of r, last line first, without their newlines, and the offset behind the last
// newline. A line longer than MaxLine ends the search with ErrDamaged.
func lastLines(r io.ReaderAt, size int64, n int) (lines [][]byte, end int64, err error) {
	if end, err = lastNewline(r, size); err != nil {
		return nil, 0, err
	}
	var held []byte // bytes [at, stop) of the file, which begin in some line
	for at, stop := end, end; len(lines) < n && stop > 0; {
		cut := -1
		if len(held) > 0 {
			cut = bytes.LastIndexByte(held[:len(held)-1], '\n')
		}
		switch {
		case cut >= 0 || at == 0 && len(held) > 0:
			lines = append(lines, bytes.Clone(held[cut+1:len(held)-1]))
			held = held[:cut+1]
			stop = at + int64(len(held))
		case len(held) > MaxLine:
			return nil, 0, fmt.Errorf("%w: a line is longer than %d bytes", ErrDamaged, MaxLine)
		default:
			more := make([]byte, min(at, MaxLine), min(at, MaxLine)+int64(len(held)))
			at -= int64(len(more))
			if err := readAt(r, more, at); err != nil {
				return nil, 0, err
			}
			held = append(more, held...)
		}
	}
	return lines, end, nil
}

// lastNewline returns the offset after the last newline in the first size bytes.
// The bytes after it are the beginning of a line that was never finished, of any
// length: after a power loss they may be a stretch of zeros.
func lastNewline(r io.ReaderAt, size int64) (int64, error) {
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
	return lastNewline(r, cut)
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
		if l, ok := parseLine(text); ok && whole {
			return l.seq
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

// isMissing reports whether err says that a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
