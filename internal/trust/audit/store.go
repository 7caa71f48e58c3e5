package audit

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// store brings whole lines of at most size bytes to the end of the log, or leaves it
// as it was. make makes them for the segment that they come to. Only the leader calls it.
func (l *Log) store(size int64, make func() []byte) (err error) {
	if size == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			l.callers.reset() // some may be in no line
		}
	}()
	if err := l.ready(size); err != nil {
		return err
	}
	lines := make()
	err = l.write(lines)
	if isFileLimit(err) && l.size > 0 && !l.uncut {
		if err = l.rotate(); err == nil {
			lines = make()
			err = l.write(lines)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	if l.o.Always {
		if err := datasync(l.file); err != nil {
			err = fmt.Errorf("bringing the audit log to the disk: %w", err)
			l.giveUp(err)
			l.cut()
			return err
		}
	}
	l.size += int64(len(lines))
	return nil
}

// write appends to the segment and cuts back what was written of a failure.
func (l *Log) write(lines []byte) error {
	n, err := l.file.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		l.cut()
	}
	return err
}

// cut drops the bytes after the last record. When it cannot, uncut blocks further
// writes until it could.
func (l *Log) cut() { l.uncut = cutBack(l.file, l.size) != nil }

// cutBack shortens f to size. It never lengthens: a shorter file was changed by
// another program, and zeros would not repair it.
func cutBack(f *os.File, size int64) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < size {
		return fmt.Errorf("%w: %s was shortened by somebody else", ErrDamaged, f.Name())
	}
	if fi.Size() == size {
		return nil
	}
	return f.Truncate(size)
}

// ready sees to it that the segment is open, ends with the last record, and has
// room for more bytes.
func (l *Log) ready(more int64) error {
	if l.uncut {
		if err := cutBack(l.file, l.size); err != nil {
			return fmt.Errorf("cutting off what a failed write left: %w", err)
		}
		l.uncut = false
	}
	if !l.signed {
		l.syncMu.Lock()
		err := l.checkpoint()
		l.syncMu.Unlock()
		if err != nil {
			return err
		}
		l.signed = true
	}
	if l.file == nil {
		return l.create(l.number)
	}
	if l.size > 0 && (l.size+more > l.o.SegmentBytes || l.turn.Load()) {
		return l.rotate()
	}
	return nil
}

// rotate closes the segment, synced and covered by a checkpoint, and goes on in
// the next one. A failure leaves the segment open.
func (l *Log) rotate() error {
	l.syncMu.Lock()
	err := l.sync()
	if err == nil {
		err = l.checkpoint()
	}
	l.syncMu.Unlock()
	if err != nil {
		return fmt.Errorf("closing an audit segment: %w", err)
	}
	if err := l.create(l.number + 1); err != nil {
		return err
	}
	if l.turn.Store(false); l.o.Rotated != nil {
		l.o.Rotated()
	}
	return nil
}

// create makes the segment number and goes on in it.
func (l *Log) create(number int) error {
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | syscall.O_NOFOLLOW
	f, err := os.OpenFile(segmentPath(l.dir, number), flags, 0o600)
	if err != nil {
		return fmt.Errorf("creating an audit segment: %w", err)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() > 0 {
		f.Close()
		return fmt.Errorf("creating an audit segment: %w: %s is there already (%v)", ErrDamaged, f.Name(), err)
	}
	if err := syncDir(l.dir); err != nil {
		f.Close()
		return fmt.Errorf("creating an audit segment: %w", err)
	}
	l.enter(f, number, 0)
	return nil
}

// enter makes f, which ends with the last record at size, the segment.
func (l *Log) enter(f *os.File, number int, size int64) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	old := l.file
	l.file = f
	l.mu.Unlock()
	if old != nil {
		old.Close() // it was synced; there is nothing left to fail
	}
	l.number, l.size = number, size
	l.callers.reset()
}
