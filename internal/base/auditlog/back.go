package auditlog

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/doorward/doorward/internal/trust/audit"
)

// backBytes is the number of bytes that Backwards reads at once.
const backBytes = 256 << 10

// Backwards returns the records of the log in dir, the last one first, each a line
// without its newline that is valid until the next one. It reads only as far as the
// sequence is consumed. Each line has its caller, as from Showing. Records are not
// verified; an unfinished last line is left out. An error ends the sequence.
func Backwards(ctx context.Context, dir string) iter.Seq2[[]byte, error] {
	return BackwardsFrom(ctx, dir, math.MaxUint64)
}

// BackwardsFrom is Backwards without the segments that begin after record from.
func BackwardsFrom(ctx context.Context, dir string, from uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		numbers, _, err := audit.Segments(dir, nil)
		for _, number := range slices.Backward(numbers) {
			if from < math.MaxUint64 {
				if first, _, err := firstOf(dir, number); err == nil && first > from {
					continue
				}
			}
			more := false
			if more, err = segmentBackwards(ctx, dir, number, yield); err != nil || !more {
				break
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("reading the audit log backwards: %w", err))
		}
	}
}

// Find returns record seq of the log in dir, with its caller, as from Showing; nil: there is
// none. It reads the beginnings of segments from the last one on, and then a few places of
// one segment. Records are not verified.
func Find(dir string, seq uint64) ([]byte, error) {
	numbers, _, err := audit.Segments(dir, nil)
	if err != nil {
		return nil, err
	}
	for _, number := range slices.Backward(numbers) {
		first, size, err := firstOf(dir, number)
		if wasPruned(dir, number, err) {
			break
		}
		if err == nil && (first == 0 || first > seq) {
			continue
		}
		var line []byte
		if err == nil {
			line, err = findIn(dir, number, size, seq)
		}
		if err != nil {
			return nil, fmt.Errorf("finding record %d in the audit log: %w", seq, err)
		}
		return line, nil
	}
	return nil, nil
}

// findIn returns record seq of a segment of size bytes; nil: it has no such record.
func findIn(dir string, number int, size int64, seq uint64) ([]byte, error) {
	f, err := openSegment(dir, number)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := findLine(f, size, seq)
	return new(Showing).of(f, size).Show(line), err
}

// segmentBackwards yields the lines of one segment, last first; more is false
// when the consumer has stopped.
func segmentBackwards(ctx context.Context, dir string, number int, yield func([]byte, error) bool) (more bool, err error) {
	f, err := openSegment(dir, number)
	if wasPruned(dir, number, err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	at, err := audit.LastNewline(f, fi.Size())
	if err != nil {
		return false, err
	}
	shown := new(Showing).of(f, at)
	into := make([]byte, 0, 4096)
	show := func(line []byte, err error) bool { return yield(shown.show(into[:0], line), err) }
	var rest []byte // of a line that begins before at
	for at > 0 {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		block := make([]byte, min(at, backBytes), min(at, backBytes)+int64(len(rest)))
		at -= int64(len(block))
		if err := audit.ReadAt(f, block, at); err != nil {
			return false, err
		}
		block = append(block, rest...)
		begin := 0
		if at > 0 {
			begin = bytes.IndexByte(block, '\n') + 1
		}
		if rest = block[:begin]; at > 0 && begin == 0 || begin > backBytes {
			return false, fmt.Errorf("%w: a line is longer than %d bytes", audit.ErrDamaged, audit.MaxLine)
		}
		if !linesBackwards(block[begin:], show) {
			return false, nil
		}
	}
	return true, nil
}

// linesBackwards yields the lines of block, the last one first, and reports whether the
// consumer continues.
func linesBackwards(block []byte, yield func([]byte, error) bool) bool {
	for len(block) > 0 {
		block = block[:len(block)-1] // the newline
		cut := bytes.LastIndexByte(block, '\n') + 1
		if !yield(block[cut:], nil) {
			return false
		}
		block = block[:cut]
	}
	return true
}
