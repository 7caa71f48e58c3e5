package audit

// Writing. Invariant: a write adds whole records to a segment or leaves the log as
// it was, and a segment is closed only after it was synced and covered by a checkpoint.

import (
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/base/durable"
)

// store appends the notices and g to the log, or leaves it as it was, and returns the tip
// behind them. The lines are made after the segment for them was chosen, and again after a
// rotation. Only the leader calls store.
func (l *Log) store(notices, g *group) (end tip, err error) {
	defer func() {
		if err != nil {
			l.seg.callers.reset() // lines may have added callers whose lines were not written
		}
	}()
	most := notices.size + g.size + (len(notices.items)+len(g.items))*lineRest
	if err := l.ready(int64(most)); err != nil {
		return end, err
	}
	lines, end := l.seg.lines(l.tip, notices, g)
	err = l.seg.write(lines)
	if durable.FileFull(err) && l.seg.size > 0 && !l.seg.uncut {
		if err = l.rotate(); err == nil {
			lines, end = l.seg.lines(l.tip, notices, g)
			err = l.seg.write(lines)
		}
	}
	if err != nil {
		return end, fmt.Errorf("writing the audit log: %w", err)
	}
	if l.o.Always {
		if err := l.final(toDisk(l.seg.file, l.seg.size+int64(len(lines)))); err != nil {
			l.seg.cut()
			return end, err
		}
	}
	l.seg.size += int64(len(lines))
	return end, nil
}

// ready makes sure that the segment is open, ends with the last record, and has
// room for more bytes.
func (l *Log) ready(more int64) error {
	if err := l.seg.mend(); err != nil {
		return err
	}
	if !l.signed {
		if err := l.secure(); err != nil {
			return err
		}
		l.signed = true
	}
	if l.seg.file == nil {
		return l.goOn(l.seg.number)
	}
	if l.seg.size > 0 && (l.seg.size+more > l.o.SegmentBytes || l.turn.Load()) {
		return l.rotate()
	}
	return nil
}

// rotate syncs the segment, covers it with a checkpoint, and opens the next segment in
// its place. A failure leaves the segment open.
func (l *Log) rotate() error {
	if err := l.secure(); err != nil {
		return fmt.Errorf("closing an audit segment: %w", err)
	}
	if err := l.goOn(l.seg.number + 1); err != nil {
		return err
	}
	if l.turn.Store(false); l.o.Rotated != nil {
		l.o.Rotated()
	}
	return nil
}

// goOn creates segment number and makes it the one that is written to.
func (l *Log) goOn(number int) error {
	f, err := create(l.dir, number)
	if err != nil {
		return fmt.Errorf("creating an audit segment: %w", err)
	}
	l.enter(f, number, 0)
	return nil
}

// enter makes f the segment that is written to. Its last record ends at size.
func (l *Log) enter(f *os.File, number int, size int64) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	old := l.seg.file
	l.seg.file, l.end = f, size
	l.mu.Unlock()
	if old != nil {
		old.Close() // it was synced, so an error of Close loses nothing
	}
	l.seg.number, l.seg.size = number, size
	l.seg.callers.reset()
}
