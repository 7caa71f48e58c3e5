package audit

// The segments as files. Invariant: only an unfinished line is cut off the newest
// segment, and the lines from a hole on that a power loss left after the last
// checkpoint.

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// SegmentPath returns the path of segment n, counted from 1, of the log in dir.
func SegmentPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.jsonl", n))
}

// SegmentNumber returns the number of the segment with this file name; 0: it is no
// segment.
func SegmentNumber(name string) int {
	digits, ok := strings.CutSuffix(name, ".jsonl")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || fmt.Sprintf("%08d", n) != digits {
		return 0
	}
	return n
}

// lastLine returns the last line of the first end bytes of r, which end with a
// newline; nil: there is none. A line longer than MaxLine is ErrDamaged.
func lastLine(r io.ReaderAt, end int64) ([]byte, error) {
	if end == 0 {
		return nil, nil
	}
	part := make([]byte, min(end, MaxLine+1))
	if err := ReadAt(r, part, end-int64(len(part))); err != nil {
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
// The bytes after it are an unfinished line of any length: after a power loss they may
// be a long run of zeros.
func LastNewline(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, MaxLine)
	for end := size; end > 0; {
		part := buf[:min(end, MaxLine)]
		end -= int64(len(part))
		if err := ReadAt(r, part, end); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return end + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// holeChunk is the number of bytes that withoutHoles reads at once; several lines fit.
const holeChunk = 4 * MaxLine

// withoutHoles returns the end of the last line before the first hole after record
// synced, which is certainly on the disk; without a hole it returns size. A power loss
// may keep later writes and lose earlier ones. The lost bytes are then zeros, which no
// record contains. size is the end of a line, or 0.
func withoutHoles(r io.ReaderAt, size int64, synced uint64) (int64, error) {
	buf := make([]byte, holeChunk)
	cut := size
	for end := size; end > 0; {
		part := buf[:min(end, holeChunk)]
		end -= int64(len(part))
		if err := ReadAt(r, part, end); err != nil {
			return 0, err
		}
		if i := bytes.IndexByte(part, 0); i >= 0 {
			cut = end + int64(i)
		}
		if firstNumber(part) <= synced {
			break
		}
	}
	return LastNewline(r, cut)
}

// firstNumber returns the number of the first record in part of a segment, or math.MaxUint64
// when there is none. A part of a line is no record.
func firstNumber(part []byte) uint64 {
	for line := range bytes.Lines(part) {
		text, ended := bytes.CutSuffix(line, []byte{'\n'})
		if l, ok := ParseLine(text); ok && ended {
			return l.Seq
		}
	}
	return math.MaxUint64
}

// ReadAt fills b from position at of a file of the log.
func ReadAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	return nil
}
