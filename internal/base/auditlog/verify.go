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

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Report is the result of Verify.
type Report struct {
	OK          bool        `json:"ok"`
	Records     uint64      `json:"records"`     // number of good records, counted from the beginning
	FirstBad    uint64      `json:"first_bad"`   // number of the first record that is missing, altered or not vouched for; 0: none
	Reason      string      `json:"reason"`      // what is wrong with it, for a person; empty when OK
	Checkpoints int         `json:"checkpoints"` // number of good checkpoints
	Covered     uint64      `json:"covered"`     // number of records in the last good checkpoint
	CoveredAt   string      `json:"covered_at"`  // time of that checkpoint; empty: none
	Signatures  bool        `json:"signatures"`  // whether signatures were checked
	Begins      uint64      `json:"begins"`      // number of the first record; above 1: older ones were pruned
	BegunAt     string      `json:"begun_at"`    // when the beginning was signed; empty: nothing was pruned
	Kept        *audit.Mark `json:"kept"`        // the last mark that the log was compared with; nil: none
}

// Verify reads the whole log in dir. It checks the form, number, prev and hash of every
// record over all segments, the signature of every checkpoint, and that the
// chain had the checkpoint's hash at its number. A log that is shorter than a checkpoint
// requires was rolled back, and fails. Times are not compared, because clocks are adjusted.
//
// All marks in kept must be among the checkpoints, and the log must reach them.
// Without a mark that was kept elsewhere, Verify cannot detect that the log was removed or
// replaced by an older copy.
//
// A log whose oldest segments were pruned is verified from its signed beginning.
//
// With a nil verifier checkpoints are compared but not authenticated. With a verifier,
// a log that has records must have a checkpoint.
//
// Verify needs no daemon and does not block one. While a process holds the log open for
// writing (it has the flock), an unfinished last line is the writer's and is skipped;
// otherwise it was torn or cut, and is the first bad record: a start of the daemon
// would cut it off and record that. Damage is in the Report; an error means that the
// log could not be read.
func Verify(dir string, v note.Verifier, kept ...audit.Mark) (Report, error) {
	for try := 0; ; try++ {
		r, settled, err := verifyOnce(dir, v, kept)
		if errors.Is(err, errMeanwhile) && try < 20 {
			continue
		}
		if err != nil {
			return Report{}, fmt.Errorf("verifying the audit log: %w", err)
		}
		if r.OK || settled || try == 3 {
			return r, nil
		}
		// A write that failed on a full disk may have been read before it was cut
		// off again. Real damage is found again.
		time.Sleep(2 * settleDelay)
	}
}

// errMeanwhile means that segments were pruned while they were read.
var errMeanwhile = errors.New("segments were pruned meanwhile")

// verifyOnce is one pass. settled reports that another pass is useless, because
// no process writes.
func verifyOnce(dir string, v note.Verifier, kept []audit.Mark) (r Report, settled bool, err error) {
	w, err := newWalk(dir, v)
	if err != nil {
		return Report{}, false, err
	}
	defer w.close()
	if w.begin.Segment > 0 {
		w.report.BegunAt = w.begin.Time
	}
	if w.kept = slices.Clone(kept); len(kept) > 0 {
		w.report.Kept = &kept[len(kept)-1]
	}
	err = w.run()
	r = w.report
	r.Records, r.Checkpoints, r.Signatures = w.tip.Seq-w.begin.Seq, w.seen, v != nil
	r.Begins = w.begin.Seq + 1
	var bad *badRecord
	if errors.As(err, &bad) {
		r.FirstBad, r.Reason = bad.seq, bad.reason
		live, err := beingWritten(dir)
		return r, !w.live && !live, err
	}
	r.OK = err == nil
	return r, true, err
}

// badRecord ends a walk: it names the bad record and the reason.
type badRecord struct {
	seq    uint64
	reason string
}

func (b *badRecord) Error() string { return b.reason }

// walk reads a log once and compares records and checkpoints.
type walk struct {
	dir      string
	numbers  []int // of the segments
	begin    audit.Beginning
	unlisted error           // the error of listing the segments
	through  int             // the last segment to read; 0: all
	ctx      context.Context // is checked before each segment

	live   bool       // a process had the log open for writing when the walk began
	signed bool       // there is a verifier
	tip    audit.Mark // the last record that was read
	report Report

	file        *os.File // of the checkpoints; nil: none
	checkpoints *checkpointReader
	pending     audit.Mark // the next checkpoint
	ahead       bool       // pending holds a checkpoint
	seen        int        // number of checkpoints that were compared

	kept []audit.Mark // marks that were not found yet
}

// newWalk opens the checkpoints before it lists the segments. The checkpoints in the file
// at that moment are about records that exist already.
func newWalk(dir string, v note.Verifier) (*walk, error) {
	w := &walk{dir: dir, signed: v != nil, ctx: context.Background()}
	if err := w.openCheckpoints(v); err != nil {
		return nil, err
	}
	w.numbers, w.begin, w.unlisted = audit.Segments(dir, v)
	w.tip = audit.Mark{Hash: audit.Genesis}
	if w.begin.Segment > 0 {
		w.tip = audit.Mark{Seq: w.begin.Seq, Hash: w.begin.Hash}
	}
	return w, nil
}

func (w *walk) openCheckpoints(v note.Verifier) (err error) {
	dir := w.dir
	if w.live, err = beingWritten(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, audit.CheckpointsName), os.O_RDONLY|durable.NoFollow, 0)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	w.file = f
	w.checkpoints = &checkpointReader{r: newLineReader(io.NewSectionReader(f, 0, fi.Size())), v: v}
	return nil
}

func (w *walk) close() {
	if w.file != nil {
		w.file.Close()
	}
}

func (w *walk) bad(seq uint64, format string, args ...any) error {
	return &badRecord{seq: seq, reason: fmt.Sprintf(format, args...)}
}

func (w *walk) run() error {
	if errors.Is(w.unlisted, audit.ErrDamaged) {
		return w.bad(1, "%v", w.unlisted)
	}
	if w.unlisted != nil && (len(w.kept) == 0 || !missing(w.unlisted)) {
		return w.unlisted
	}
	if err := w.skip(); err != nil {
		return err
	}
	if err := w.segments(); err != nil || w.through > 0 {
		return err
	}
	if w.ahead {
		return w.bad(w.tip.Seq+1, "record %d is missing: the log ends with record %d, but a checkpoint of %s covers %d records", w.tip.Seq+1, w.tip.Seq, w.pending.Time, w.pending.Seq)
	}
	if err := w.keptBad(); err != nil {
		return err
	}
	if w.signed && w.seen == 0 && w.tip.Seq > 0 {
		return w.bad(w.begin.Seq+1, "there is no checkpoint, so no signature covers any record")
	}
	return nil
}

// skip skips the checkpoints that cover only pruned records.
func (w *walk) skip() error {
	err := w.advance()
	for err == nil && w.ahead && w.pending.Seq < w.begin.Seq {
		err = w.advance()
	}
	if err != nil {
		return err
	}
	return w.meet()
}

// segments checks all segments, or those up to through.
func (w *walk) segments() error {
	next := w.begin.Segment + 1
	for i, n := range w.numbers {
		if w.through > 0 && n > w.through {
			break
		}
		if n != next {
			break
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.segment(n, i == len(w.numbers)-1); err != nil {
			return err
		}
		next++
	}
	end := w.begin.Segment + len(w.numbers)
	if w.begin.Segment > 0 {
		end = max(end, w.begin.Segment+1) // the newest segment is never removed
	}
	if w.through > 0 {
		end = w.through
	}
	if next <= end {
		return w.bad(w.tip.Seq+1, "segment %s is missing; record %d should be its first", filepath.Base(audit.SegmentPath(w.dir, next)), w.tip.Seq+1)
	}
	return nil
}

// segment checks one segment. Only the last segment may end with an unfinished line, and
// only while a process writes.
func (w *walk) segment(n int, last bool) error {
	f, err := openSegment(w.dir, n)
	if wasPruned(w.dir, n, err) {
		return errMeanwhile
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := newLineReader(f)
	name := filepath.Base(f.Name())
	for first := true; ; first = false {
		next := w.tip.Seq + 1
		text, err := r.next()
		switch {
		case err == io.EOF && first && !last:
			return w.bad(next, "segment %s is empty; record %d should be its first", name, next)
		case err == io.EOF, errors.Is(err, errUnfinished) && last && w.live:
			return nil
		case errors.Is(err, errUnfinished) && last:
			return w.bad(next, "record %d is unfinished: %s ends in the middle of it and no daemon is writing; if the daemon was killed, its next start removes the unfinished record and records that", next, name)
		case errors.Is(err, errUnfinished):
			return w.bad(next, "record %d is unfinished: %s ends in the middle of it", next, name)
		case errors.Is(err, errTooLong):
			return w.bad(next, "record %d is not in the form of a record: its line in %s is too long", next, name)
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if err := w.record(text, name); err != nil {
			return err
		}
	}
}

func (w *walk) record(text []byte, name string) error {
	next := w.tip.Seq + 1
	l, ok := audit.ParseLine(text)
	switch {
	case !ok:
		return w.bad(next, "record %d in %s was altered: it is not in the form of a record", next, name)
	case !l.Intact():
		return w.bad(next, "record %d in %s was altered: its hash does not fit its text", next, name)
	case l.Seq > next:
		return w.bad(next, "record %d is missing: %s has record %d in its place", next, name, l.Seq)
	case l.Seq < next:
		return w.bad(next, "record %d is not in its place: %s has record %d there", next, name, l.Seq)
	case string(l.Prev) != w.tip.Hash:
		return w.bad(next, "record %d in %s does not continue the one before: one of the two was replaced", next, name)
	}
	w.tip = audit.Mark{Seq: l.Seq, Hash: string(l.Hash)}
	return w.meet()
}

// meet compares the tip with the checkpoints for its number.
func (w *walk) meet() error {
	for w.ahead && w.pending.Seq <= w.tip.Seq {
		c := w.pending
		if c.Seq < w.tip.Seq {
			return w.bad(c.Seq+1, "the checkpoint of %s, over %d records, comes after one over more records", c.Time, c.Seq)
		}
		if c.Hash != w.tip.Hash {
			return w.bad(max(c.Seq, 1), "record %d differs from the one that the checkpoint of %s covers: the log was rewritten", c.Seq, c.Time)
		}
		w.seen++
		w.kept = slices.DeleteFunc(w.kept, func(m audit.Mark) bool { return c.Seq == m.Seq && c.Hash == m.Hash })
		w.report.Covered, w.report.CoveredAt = c.Seq, c.Time
		if err := w.advance(); err != nil {
			return err
		}
	}
	return nil
}

// advance reads the next checkpoint.
func (w *walk) advance() error {
	w.ahead = false
	if w.checkpoints == nil {
		return nil
	}
	c, err := w.checkpoints.next()
	var bad audit.BadCheckpoint
	switch {
	case err == io.EOF, errors.Is(err, errUnfinished) && w.live:
		return nil
	case errors.Is(err, errUnfinished), errors.As(err, &bad), errors.Is(err, errTooLong):
		return w.bad(w.report.Covered+1, "checkpoint %d, which should cover record %d, cannot be trusted: %v", w.seen+1, w.report.Covered+1, err)
	case err != nil:
		return fmt.Errorf("reading the checkpoints: %w", err)
	}
	w.pending, w.ahead = c, true
	return nil
}
