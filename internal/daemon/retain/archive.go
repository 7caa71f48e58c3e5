package retain

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Archive copies the segments of the log in dir up to through, 0 for all, to the directory
// to, with their checkpoints and their signed beginning. The copy is a log that
// auditlog.Verify accepts with the public key alone. If the directory holds the archive of
// earlier segments, that archive is continued. When Archive returns without an error, the
// copy is on the disk and verified.
func Archive(dir, to string, through int, v note.Verifier) (auditlog.Report, error) {
	r, err := archive(dir, to, through, v)
	if err != nil {
		return r, fmt.Errorf("archiving the audit log to %s: %w", to, err)
	}
	return r, nil
}

func archive(dir, to string, through int, v note.Verifier) (r auditlog.Report, err error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return r, err
	}
	numbers, _, err := audit.Segments(dir, nil)
	if err != nil {
		return r, err
	}
	from, err := joint(dir, to)
	if err != nil {
		return r, err
	}
	last := uint64(0)
	for _, n := range numbers {
		if n < from || through > 0 && n > through {
			continue
		}
		if last, err = copySegment(dir, to, n); err != nil {
			return r, err
		}
	}
	if err := copyCheckpoints(dir, to, last); err != nil {
		return r, err
	}
	if r, err = auditlog.Verify(to, v); err == nil && !r.OK {
		err = fmt.Errorf("%w: the archive is not complete: record %d: %s", audit.ErrDamaged, r.FirstBad, r.Reason)
	}
	return r, err
}

// joint returns the first segment to copy: the last one in the archive, which may have grown,
// or the first of the log.
func joint(dir, to string) (int, error) {
	have, _, err := audit.Segments(to, nil)
	if err != nil {
		return 0, err
	}
	_, begin, err := audit.Segments(dir, nil)
	if err != nil {
		return 0, err
	}
	if len(have) > 0 {
		if last := have[len(have)-1]; last < begin.Segment {
			return 0, fmt.Errorf("it ends with segment %d, and the log begins with %d: use another directory", last, begin.Segment+1)
		}
		return max(have[len(have)-1], begin.Segment+1), nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "begin"))
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err == nil {
		err = durable.ReplaceAt(filepath.Join(to, "begin"), text)
	}
	return begin.Segment + 1, err
}

// copySegment copies the complete lines of a segment, and returns the number of the last
// record.
func copySegment(dir, to string, n int) (last uint64, err error) {
	text, err := os.ReadFile(audit.SegmentPath(dir, n))
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	path := audit.SegmentPath(to, n)
	if err := durable.ReplaceAt(path, text); err != nil {
		return 0, err
	}
	e, err := endOf(segment{number: n, path: path, bytes: int64(len(text))})
	return e.Seq, err
}

// checkpointLines is the number of lines of a checkpoint, including empty ones.
const checkpointLines = 7

// copyCheckpoints adds the checkpoints that the archive lacks, up to record last.
func copyCheckpoints(dir, to string, last uint64) error {
	path := filepath.Join(to, "checkpoints")
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	newest, any := uint64(0), false
	for c := range checkpoints(have) {
		newest, any = about(c), true
	}
	all, err := os.ReadFile(filepath.Join(dir, "checkpoints"))
	if err != nil {
		return err
	}
	for c := range checkpoints(all) {
		if n := about(c); n <= last && (n > newest || !any) {
			have = append(have, c...)
		}
	}
	return durable.ReplaceAt(path, have)
}

// checkpoints yields the complete checkpoints of text.
func checkpoints(text []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for lines := bytes.SplitAfter(text, []byte("\n")); len(lines) > checkpointLines; lines = lines[checkpointLines:] {
			if !yield(bytes.Join(lines[:checkpointLines], nil)) {
				return
			}
		}
	}
}

// about returns the number of records that a checkpoint covers.
func about(checkpoint []byte) uint64 {
	_, rest, _ := bytes.Cut(checkpoint, []byte("\n"))
	number, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return 0 // Verify reports the damage
	}
	return n
}
