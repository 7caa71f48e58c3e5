package auditlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// settleDelay is the time between two reads of the files by Follow. A write that fails on
// a full disk is cut off again at once, so a line that still exists at the next read is
// part of the log.
const settleDelay = 50 * time.Millisecond

// Tail returns the last n records of the log in dir, oldest first, each a line
// without its newline, with its caller, as from Showing. It reads only the end of the
// log. Records are not verified; an unfinished last line is left out.
func Tail(dir string, n int) ([][]byte, error) {
	numbers, _, err := audit.Segments(dir, nil)
	if err != nil {
		return nil, err
	}
	var lines [][]byte
	for _, number := range slices.Backward(numbers) {
		if len(lines) >= n {
			break
		}
		more, err := tailOf(dir, number, n-len(lines))
		if err != nil {
			return nil, fmt.Errorf("reading the end of the audit log: %w", err)
		}
		lines = append(lines, more...)
	}
	slices.Reverse(lines)
	return lines, nil
}

// tailOf returns the last n lines of a segment, last line first.
func tailOf(dir string, number, n int) ([][]byte, error) {
	f, err := openSegment(dir, number)
	if wasPruned(dir, number, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	lines, end, err := lastLines(f, fi.Size(), n)
	shown := new(Showing).of(f, end)
	for i := range lines {
		lines[i] = shown.Show(lines[i])
	}
	return lines, err
}

// Export writes every finished line of the log in dir to w, unchanged. Segments that
// are pruned before the first line is written are left out; a later removal is an
// error.
func Export(ctx context.Context, dir string, w io.Writer) error {
	numbers, _, err := audit.Segments(dir, nil)
	if err != nil {
		return err
	}
	began := false
	for _, number := range numbers {
		err := exportSegment(ctx, dir, number, w)
		if !began && wasPruned(dir, number, err) {
			continue
		}
		if began = true; err != nil {
			return fmt.Errorf("exporting the audit log: %w", err)
		}
	}
	return nil
}

func exportSegment(ctx context.Context, dir string, number int, w io.Writer) error {
	f, err := openSegment(dir, number)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := audit.LastNewline(f, fi.Size())
	if err != nil {
		return err
	}
	for end > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(w, f, min(end, 1<<20))
		if err != nil {
			return err
		}
		end -= n
	}
	return nil
}

// Follow calls fn with each existing and new record from number from on, in order, until
// ctx ends (its error is returned) or fn fails. With from 0 it delivers only new records.
// The line has no newline, has its caller, as from Showing, and is valid until fn
// returns. Follow needs no daemon and continues over rotation and restarts. A record is
// delivered at the second read that finds it, 50 to 100 ms after it was written. Each
// record must continue the one before, and the log must not be removed or replaced;
// otherwise the error is audit.ErrDamaged. Records
// pruned before the first record was read are skipped; later, pruning of records that
// were not delivered is ErrPruned.
func Follow(ctx context.Context, dir string, from uint64, fn func(line []byte) error) error {
	c := &cursor{dir: dir, from: from}
	defer c.close()
	if err := c.find(); err != nil {
		return fmt.Errorf("following the audit log: %w", err)
	}
	ticker := time.Tick(settleDelay)
	for {
		if err := c.read(ctx, fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker:
		}
	}
}

// cursor is the position of Follow in the log.
type cursor struct {
	dir    string
	from   uint64 // first number to deliver; 0: every record that is read
	number int    // of the segment
	file   *os.File
	at     int64 // offset up to which records were delivered or skipped
	there  int64 // size of the file at the last read
	seq    uint64
	hash   []byte // of the last line read
	shown  Showing
}

func (c *cursor) close() {
	if c.file != nil {
		c.file.Close()
	}
}

// find sets the start: the newest segment whose first record is not after from, or, with
// from 0, the end of the log.
func (c *cursor) find() error {
	numbers, begin, err := audit.Segments(c.dir, nil)
	if err != nil {
		return err
	}
	c.number = begin.Segment + 1
	for _, number := range slices.Backward(numbers) {
		first, size, err := firstOf(c.dir, number)
		if wasPruned(c.dir, number, err) {
			return nil
		}
		c.number = number
		if err != nil {
			return err
		}
		if c.from == 0 {
			c.at = size
			return nil
		}
		if first != 0 && first <= c.from {
			return nil
		}
	}
	return nil
}

// firstOf returns the number of a segment's first record, 0 when there is none
// yet, and the length of the segment up to its last newline.
func firstOf(dir string, number int) (seq uint64, size int64, err error) {
	f, err := openSegment(dir, number)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if size, err = audit.LastNewline(f, fi.Size()); err != nil || size == 0 {
		return 0, 0, err
	}
	text, err := newLineReader(f).next()
	if err != nil {
		return 0, 0, err
	}
	l, ok := audit.ParseLine(text)
	if !ok {
		return 0, 0, fmt.Errorf("%w: %s does not begin with a record", audit.ErrDamaged, filepath.Base(f.Name()))
	}
	return l.Seq, size, nil
}

// read delivers the new records, and continues with the next segment when this one is closed.
func (c *cursor) read(ctx context.Context, fn func([]byte) error) error {
	for {
		closed, err := c.look()
		if err != nil || c.file == nil {
			return err
		}
		if err := c.deliver(ctx, closed, fn); err != nil || !closed {
			return err
		}
		if c.at < c.there {
			return c.damaged("the segment ends in the middle of a record")
		}
		c.file.Close()
		c.file, c.number, c.at, c.there = nil, c.number+1, 0, 0
	}
}

func (c *cursor) damaged(what string) error {
	return fmt.Errorf("%w: after record %d in %s: %s", audit.ErrDamaged, c.seq, filepath.Base(c.file.Name()), what)
}

// look opens the segment if it is not open. closed means that a later segment exists or
// the beginning lies behind this one, so that nothing is added to it any more.
func (c *cursor) look() (closed bool, err error) {
	begin, err := audit.ReadBeginning(c.dir, nil)
	if err != nil {
		return false, fmt.Errorf("following the audit log: %w", err)
	}
	if c.file == nil {
		if err := c.pass(begin); err != nil {
			return false, err
		}
		if c.file, err = openSegment(c.dir, c.number); missing(err) {
			c.file = nil
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("following the audit log: %w", err)
		}
	}
	_, err = os.Stat(audit.SegmentPath(c.dir, c.number+1))
	if closed = err == nil || begin.Segment >= c.number; closed {
		return true, nil
	}
	return false, c.inPlace()
}

// inPlace returns an error if the open segment is not the one at its path: what is recorded
// from then on would not be seen.
func (c *cursor) inPlace() error {
	fi, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("following the audit log: %w", err)
	}
	there, err := os.Lstat(c.file.Name())
	if err == nil && os.SameFile(fi, there) || wasPruned(c.dir, c.number, err) {
		return nil
	}
	return c.damaged("the log was removed or replaced")
}

// ErrPruned means that records were pruned before they could be delivered.
var ErrPruned = errors.New("records were pruned before they were read")

// pass moves the cursor behind the segments that were pruned.
func (c *cursor) pass(begin audit.Beginning) error {
	if c.number > begin.Segment {
		return nil
	}
	if c.hash != nil && c.seq < begin.Seq {
		return fmt.Errorf("following the audit log: %w: records %d to %d", ErrPruned, c.seq+1, begin.Seq)
	}
	c.number, c.at, c.there = begin.Segment+1, 0, 0
	return nil
}

// deliver calls fn with the records that were in the file at the last read already, or, if
// the segment is closed, with all of them.
func (c *cursor) deliver(ctx context.Context, closed bool, fn func([]byte) error) error {
	fi, err := c.file.Stat()
	if err != nil {
		return fmt.Errorf("following the audit log: %w", err)
	}
	settled := min(c.there, fi.Size())
	if c.there = fi.Size(); closed {
		settled = c.there
	}
	switch {
	case c.there < c.at:
		return c.damaged("the log became shorter")
	case settled <= c.at:
		return ctx.Err()
	}
	c.shown.of(c.file, settled)
	r := newLineReader(io.NewSectionReader(c.file, c.at, settled-c.at))
	for ctx.Err() == nil {
		text, err := r.next()
		if err == io.EOF || errors.Is(err, errUnfinished) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("following the audit log: %w", err)
		}
		if err := c.accept(text); err != nil {
			return err
		}
		c.at += int64(len(text)) + 1
		if c.seq < c.from {
			continue
		}
		if err := fn(c.shown.Show(text)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// accept checks that a line continues the one before, and remembers it.
func (c *cursor) accept(text []byte) error {
	l, ok := audit.ParseLine(text)
	if !ok || !l.Intact() || c.hash != nil && (l.Seq != c.seq+1 || string(l.Prev) != string(c.hash)) {
		return c.damaged("the next record does not continue this one")
	}
	c.seq, c.hash = l.Seq, append(c.hash[:0], l.Hash...)
	return nil
}
