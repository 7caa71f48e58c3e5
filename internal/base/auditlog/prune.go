package auditlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// Removable returns the files of segments before the beginning, which an interrupted
// removal has left. They are not part of the log.
func Removable(dir string) (paths []string, err error) {
	b, err := audit.ReadBeginning(dir, nil)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("listing the audit segments: %w", err)
	}
	for _, path := range files {
		if n := audit.SegmentNumber(filepath.Base(path)); n > 0 && n <= b.Segment {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// Cut moves the beginning of l behind segment through, which must be closed. It
// verifies the segments up to through, calls before, which records the removal, and
// signs the new beginning. Afterwards the files of Removable can be removed in any
// order, at any time. After an error, also one of before, the beginning is unchanged.
func Cut(ctx context.Context, l *audit.Log, through int, before func(audit.Beginning) error) (audit.Beginning, error) {
	b, err := cutPoint(ctx, l, through)
	if err == nil {
		err = before(b)
	}
	if err == nil {
		err = l.Begin(b)
	}
	if err != nil {
		return audit.Beginning{}, fmt.Errorf("pruning the audit log: %w", err)
	}
	return b, nil
}

// cutPoint verifies the segments up to through and returns the beginning behind
// them.
func cutPoint(ctx context.Context, l *audit.Log, through int) (b audit.Beginning, err error) {
	dir := l.Dir()
	if l.Verifier() == nil {
		return b, errors.New("there is no key to sign with")
	}
	if _, err := os.Lstat(audit.SegmentPath(dir, through+1)); err != nil {
		return b, fmt.Errorf("segment %s is not closed: %w", filepath.Base(audit.SegmentPath(dir, through)), err)
	}
	w, err := newWalk(dir, l.Verifier())
	if err != nil {
		return b, err
	}
	defer w.close()
	if w.ctx, w.through = ctx, through; through <= w.begin.Segment {
		return b, fmt.Errorf("the log begins with segment %d already", w.begin.Segment+1)
	}
	err = w.run()
	if ctx.Err() != nil {
		return b, ctx.Err()
	}
	if err != nil {
		return b, fmt.Errorf("%w: the segments to be removed are not complete: %w", audit.ErrDamaged, err)
	}
	return audit.Beginning{Mark: audit.Mark{Seq: w.tip.Seq, Hash: w.tip.Hash, Time: audit.Stamp(time.Now())}, Segment: through}, nil
}

// TrimCheckpoints removes the checkpoints of l that cover only removed records.
func TrimCheckpoints(l *audit.Log) error {
	b, err := audit.ReadBeginning(l.Dir(), nil)
	if err != nil || b.Segment == 0 {
		return err
	}
	var unread error
	err = l.DropCheckpoints(func(all []byte) (old int) {
		for r := (&checkpointReader{r: newLineReader(bytes.NewReader(all))}); ; old += len(r.text) {
			next, err := r.next()
			if err != nil {
				unread = err // the end is an error too: the last checkpoint covers remaining records
				return 0
			}
			if next.Seq >= b.Seq {
				return old
			}
		}
	})
	return cmp.Or(err, unread)
}
