package audit

// Opening. Invariant: a log is continued only behind its last whole record, and
// never when it contradicts its last checkpoint.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// LockName is the file whose flock makes one process the writer. Only a writer
// holds it; a reader takes it for an instant to learn whether there is a writer.
const LockName = "lock"

// lockWait is the time for which Open tries to become the writer: a reader that takes the
// lock for an instant must not count as a second writer.
const lockWait = 100 * time.Millisecond

// Open opens the log in dir for writing by this process alone, and creates dir if it
// does not exist. It fails with ErrLocked when another process writes to the log. It
// reads only the end of the log. It cuts off an unfinished last line, and the records
// since the last checkpoint from the first hole that a power loss left. It records
// the number of cut bytes in the event audit.torn, and then audit.start.
//
// ErrDamaged means that the last record was altered, that segments are
// missing, or that the log contradicts its last checkpoint. Such a log
// is never continued, because the next checkpoint would vouch for it; the operator moves
// the directory away and keeps it.
//
// A full disk is not an error of Open: the log opens, its State is StateFull, and Append
// fails until there is space.
func Open(dir string, o Options) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the audit directory: %w", err)
	}
	held, err := durable.Lock(filepath.Join(dir, LockName), lockWait)
	if errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	o = o.withDefaults()
	o.Log = o.Log.With("dir", dir)
	l := &Log{dir: dir, o: o, lock: held, tip: genesis(), seg: segment{number: 1}}
	l.next, l.written = newGroup(&l.mu), newGroup(&l.mu)
	l.alarm.kick, l.stop, l.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	if err = l.recover(); err == nil {
		l.flush()
		err = l.trouble.lasting() // without space, the events of the start wait
	}
	if err != nil {
		if l.seg.file != nil {
			l.seg.file.Close()
		}
		durable.Unlock(held)
		return nil, fmt.Errorf("opening the audit log in %s: %w", dir, err)
	}
	l.nextCheck = time.Now().Add(l.o.CheckpointEvery)
	go l.keep()
	return l, nil
}

// recover finds the end of the chain, cuts off what was not finished, compares the end
// with the newest checkpoint, and queues the events of the start.
func (l *Log) recover() error {
	checkpoints, cutCheckpoint, err := openCheckpoints(l.dir, l.Verifier())
	if err != nil {
		return err
	}
	l.checkpoints = checkpoints
	l.signed = l.o.Key == nil || checkpoints.any
	clean, torn, err := l.findTip()
	if err != nil {
		return err
	}
	if err := compare(l.tip, checkpoints, l.o.Key != nil); err != nil {
		return err
	}
	if torn > 0 {
		l.next.add(event(l.o.Now(), Record{Action: "audit.torn", Bytes: torn, Reason: "the end was unfinished and was cut off"}), true)
	}
	if cutCheckpoint > 0 {
		l.next.add(event(l.o.Now(), Record{Action: "audit.torn", Bytes: cutCheckpoint, Reason: "the last checkpoint was unfinished and was cut off"}), true)
	}
	reason := ""
	if !clean {
		reason = "the log was not closed before"
	}
	l.next.add(event(l.o.Now(), Record{Action: "audit.start", Reason: reason}), true)
	return nil
}

// compare compares the tip with the newest checkpoint. signed means that a log with
// records must have a checkpoint.
func compare(t tip, c checkpointFile, signed bool) error {
	last := c.last
	switch {
	case !c.any && signed && t.seq > 0:
		return fmt.Errorf("%w: there are records but no checkpoint", ErrDamaged)
	case !c.any:
		return nil
	case last.Seq > t.seq:
		return fmt.Errorf("%w: it ends with record %d, but a checkpoint of %s covers %d records", ErrDamaged, t.seq, last.Time, last.Seq)
	case last.Seq == t.seq && last.Hash != string(t.hash[:]):
		return fmt.Errorf("%w: record %d differs from the one that the checkpoint of %s covers", ErrDamaged, last.Seq, last.Time)
	}
	return nil
}

// findTip sets the tip and opens the segment to continue. clean reports whether the log
// was closed or is new; torn is the number of bytes that were cut off.
func (l *Log) findTip() (clean bool, torn int64, err error) {
	numbers, begin, err := Segments(l.dir, l.Verifier())
	if err != nil || len(numbers) == 0 && begin.Segment == 0 {
		return true, 0, err
	}
	l.tip = begin.tip()
	number := begin.Segment
	for i := range max(len(numbers), 1) { // they count up without a gap
		number++
		if i == len(numbers) || numbers[i] != number {
			return false, 0, fmt.Errorf("%w: segment %s is missing", ErrDamaged, filepath.Base(SegmentPath(l.dir, number)))
		}
	}
	last, size, torn, err := openLast(l.dir, number, l.checkpoints.last.Seq)
	if err != nil {
		return false, 0, err
	}
	l.enter(last, number, size)
	text, err := lastLine(last, size)
	if err == nil && text == nil && len(numbers) > 1 {
		text, err = lastTextOf(l.dir, number-1)
	}
	if err != nil || text == nil {
		return begin.Segment == 0, torn, err
	}
	l.tip, err = tipOf(text)
	return bytes.Contains(text, []byte(`,"source":"audit","action":"audit.stop"`)), torn, err
}

// tipOf returns the tip behind the record in text.
func tipOf(text []byte) (t tip, err error) {
	l, ok := ParseLine(text)
	if !ok || !l.Intact() {
		return t, fmt.Errorf("%w: the last record was altered", ErrDamaged)
	}
	t.seq = l.Seq
	copy(t.hash[:], l.Hash)
	return t, nil
}

// openLast opens the newest segment for appending and cuts off its unfinished end. size
// is its length afterwards, torn the number of bytes cut off. synced is the number of a
// record that is certainly on the disk.
func openLast(dir string, number int, synced uint64) (f *os.File, size, torn int64, err error) {
	f, err = os.OpenFile(SegmentPath(dir, number), os.O_RDWR|os.O_APPEND|durable.NoFollow, 0)
	if err != nil {
		return nil, 0, 0, err
	}
	fi, err := f.Stat()
	if err == nil {
		size, err = LastNewline(f, fi.Size())
	}
	if err == nil {
		size, err = withoutHoles(f, size, synced)
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

// lastOf returns the tip behind a closed segment.
func lastOf(dir string, number int) (tip, error) {
	text, err := lastTextOf(dir, number)
	if err != nil {
		return tip{}, err
	}
	return tipOf(text)
}

// lastTextOf returns the last line of a closed segment, which must have one.
func lastTextOf(dir string, number int) ([]byte, error) {
	f, err := os.OpenFile(SegmentPath(dir, number), os.O_RDONLY|durable.NoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end, err := LastNewline(f, fi.Size())
	if err != nil {
		return nil, err
	}
	text, err := lastLine(f, end)
	if err == nil && text == nil {
		err = fmt.Errorf("%w: segment %s is empty", ErrDamaged, filepath.Base(f.Name()))
	}
	return text, err
}
