package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Open opens the log in dir, which it makes if need be, for writing by this
// process alone: ErrLocked when another one has it. It reads the end of the log
// only, however long it is: an unfinished last line, and whatever a power loss
// has left holes in since the last checkpoint, is cut off and recorded as the
// event audit.torn with the number of its bytes, then audit.start follows.
//
// ErrDamaged means that the last record is not whole, that segments are
// missing, or that the log is shorter than its last checkpoint says. Such a log
// is never continued, because that would vouch for it; the operator moves the
// directory away and keeps it.
//
// A full disk is no error here: the log opens, State says full, and Append
// fails until there is space.
func Open(dir string, o Options) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the audit directory: %w", err)
	}
	held, err := lock(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	l := &Log{dir: dir, o: o.withDefaults(), lock: held, tip: genesis(), number: 1}
	l.next = newGroup(&l.mu)
	l.kick, l.stop, l.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	if err := l.recover(); err != nil {
		if l.file != nil {
			l.file.Close()
		}
		unlock(held)
		return nil, fmt.Errorf("opening the audit log in %s: %w", dir, err)
	}
	l.mu.Lock()
	_ = l.settle(l.next) // a failure is kept in trouble, and the events wait
	err = l.trouble
	l.mu.Unlock()
	if err != nil && !isSpace(err) {
		l.file.Close()
		unlock(held)
		return nil, fmt.Errorf("opening the audit log in %s: %w", dir, err)
	}
	l.nextCheck = time.Now().Add(l.o.CheckpointEvery)
	go l.keep()
	return l, nil
}

// recover finds the end of the chain, cuts off what was not finished, compares
// with the newest checkpoint, and queues the events that say so.
func (l *Log) recover() error {
	var verifier note.Verifier
	if l.o.Key != nil {
		verifier = l.o.Key.verifier
	}
	checkpoints, cutCheckpoint, err := openCheckpoints(l.dir, verifier)
	if err != nil {
		return err
	}
	l.checkpoints = checkpoints
	l.signed = l.o.Key == nil || checkpoints.any
	clean, torn, err := l.findTip(verifier)
	if err != nil {
		return err
	}
	if err := l.compare(); err != nil {
		return err
	}
	if torn > 0 {
		l.next.add(l.event("audit.torn", 0, torn, "the end was unfinished and was cut off"), true)
	}
	if cutCheckpoint > 0 {
		l.next.add(l.event("audit.torn", 0, cutCheckpoint, "the last checkpoint was unfinished and was cut off"), true)
	}
	reason := ""
	if !clean {
		reason = "the log was not closed before"
	}
	l.next.add(l.event("audit.start", 0, 0, reason), true)
	return nil
}

// compare holds the tip against the newest checkpoint.
func (l *Log) compare() error {
	last := l.checkpoints.last
	switch {
	case !l.checkpoints.any && l.o.Key != nil && l.tip.seq > 0:
		return fmt.Errorf("%w: there are records but no checkpoint", ErrDamaged)
	case !l.checkpoints.any:
		return nil
	case last.seq > l.tip.seq:
		return fmt.Errorf("%w: it ends with record %d, but a checkpoint of %s says that there were %d", ErrDamaged, l.tip.seq, last.time, last.seq)
	case last.seq == l.tip.seq && last.hash != l.tip.hash:
		return fmt.Errorf("%w: record %d is not the one that the checkpoint of %s vouches for", ErrDamaged, last.seq, last.time)
	}
	return nil
}

// findTip sets the tip and the segment to go on in. clean says whether the log
// was closed, or is new; torn how many bytes of an unfinished line were cut off.
func (l *Log) findTip(v note.Verifier) (clean bool, torn int64, err error) {
	numbers, begin, err := listed(l.dir, v)
	if err != nil || len(numbers) == 0 && begin.Segment == 0 {
		return true, 0, err
	}
	l.tip = begin.tip()
	number := begin.Segment + max(len(numbers), 1)
	if n := firstGap(append(numbers, number+1), begin.Segment+1); n > 0 {
		return false, 0, fmt.Errorf("%w: segment %s is missing", ErrDamaged, filepath.Base(segmentPath(l.dir, n)))
	}
	last, size, torn, err := l.openLast(number)
	if err != nil {
		return false, 0, err
	}
	l.enter(last, number, size)
	tail, err := lastLine(last, size)
	if err == nil && tail == nil && len(numbers) > 1 {
		tail, err = l.lastOf(number - 1)
	}
	if err != nil || tail == nil {
		return begin.Segment == 0 && tail == nil, torn, err
	}
	return bytes.Contains(tail, []byte(`,"source":"audit","action":"audit.stop"`)), torn, l.setTip(tail)
}

func (l *Log) setTip(text []byte) error {
	t, ok := parseLine(text)
	if !ok || !t.intact() {
		return fmt.Errorf("%w: the last record was altered", ErrDamaged)
	}
	l.tip.seq = t.seq
	copy(l.tip.hash[:], t.hash)
	return nil
}

// openLast opens the newest segment for appending, without its unfinished end.
func (l *Log) openLast(number int) (f *os.File, size, torn int64, err error) {
	f, err = os.OpenFile(segmentPath(l.dir, number), os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, 0, err
	}
	fi, err := f.Stat()
	if err == nil {
		size, err = lastNewline(f, fi.Size())
	}
	if err == nil {
		size, err = withoutHoles(f, size, l.checkpoints.last.seq)
	}
	if err == nil && size < fi.Size() {
		torn = fi.Size() - size
		err = errors.Join(f.Truncate(size), f.Sync())
	}
	if err != nil {
		f.Close()
		return nil, 0, 0, fmt.Errorf("finding the last record: %w", err)
	}
	return f, size, torn, nil
}

// lastOf returns the last line of a closed segment, which must be whole.
func (l *Log) lastOf(number int) ([]byte, error) {
	f, err := openSegment(l.dir, number)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	text, err := lastLine(f, fi.Size())
	if err == nil && (text == nil || int64(len(text)) == 0) {
		err = fmt.Errorf("%w: segment %s is empty", ErrDamaged, filepath.Base(f.Name()))
	}
	return text, err
}

// lastLine returns the last finished line of the first size bytes; nil: none.
func lastLine(f *os.File, size int64) ([]byte, error) {
	lines, _, err := lastLines(f, size, 1)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	return lines[0], nil
}
