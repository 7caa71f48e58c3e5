package retain

import (
	"bytes"
	"cmp"
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
// earlier segments, that archive is continued: records are added to it, and none is changed
// or removed. When Archive returns without an error, the copy is on the disk and verified.
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
	if same, err := sameDir(dir, to); err != nil || same {
		return r, cmp.Or(err, errors.New("it is the directory of the log itself"))
	}
	numbers, err := joined(dir, to)
	if err != nil {
		return r, err
	}
	last := uint64(0)
	for _, n := range numbers {
		if through > 0 && n > through {
			break
		}
		end, err := copySegment(dir, to, n)
		if err != nil {
			return r, err
		}
		last = max(last, end) // the newest segment may be empty
	}
	if err := copyCheckpoints(dir, to, last); err != nil {
		return r, err
	}
	if r, err = auditlog.Verify(to, v); err == nil && !r.OK {
		err = fmt.Errorf("%w: the archive is not complete: record %d: %s", audit.ErrDamaged, r.FirstBad, r.Reason)
	}
	return r, err
}

// sameDir reports whether two paths lead to one directory.
func sameDir(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second), err
}

// joined returns the segments of the log. The archive must end within the log or where the
// log begins, and must not begin later than the log. A new archive begins where the log does.
func joined(dir, to string) ([]int, error) {
	numbers, begin, err := audit.Segments(dir, nil)
	if err != nil {
		return nil, err
	}
	have, haveBegin, err := audit.Segments(to, nil)
	if err != nil {
		return nil, err
	}
	if len(have) > 0 {
		if last := have[len(have)-1]; last < begin.Segment || begin.Segment < haveBegin.Segment || last > begin.Segment+len(numbers) {
			return nil, fmt.Errorf("it has segments %d to %d, and the log segments %d to %d: use another directory", haveBegin.Segment+1, last, begin.Segment+1, begin.Segment+len(numbers))
		}
		return numbers, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "begin"))
	if errors.Is(err, fs.ErrNotExist) {
		return numbers, nil
	}
	if err == nil {
		err = durable.ReplaceAt(filepath.Join(to, "begin"), text)
	}
	return numbers, err
}

// copySegment copies the complete lines of a segment, and returns the number of the last
// record. The records that the archive has of it must be its first ones; otherwise they are
// of another log, or one of the two was changed.
func copySegment(dir, to string, n int) (last uint64, err error) {
	text, err := os.ReadFile(audit.SegmentPath(dir, n))
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	path := audit.SegmentPath(to, n)
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(have) < len(text) && bytes.HasPrefix(text, have):
		err = durable.ReplaceAt(path, text)
	case err == nil && !bytes.Equal(have, text):
		err = fmt.Errorf("%w: segment %d of the log does not continue that of the archive: run doorward audit verify for both, and use another directory for another log", audit.ErrDamaged, n)
	}
	if err != nil {
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
