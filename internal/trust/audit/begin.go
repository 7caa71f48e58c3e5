package audit

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/note"
)

const (
	beginName   = "begin"
	beginOrigin = Origin + "/begin"
	// beginLines is how many lines a beginning has: origin, count, hash, time and
	// segment, an empty line, the signature.
	beginLines = 7
)

// Beginning says where a log begins whose oldest segments were removed: behind
// record Seq, which was the last of that segment. The zero value is a log of
// which nothing was removed.
type Beginning struct {
	Seq     uint64 // the number of records that were removed, and of the last of them
	Hash    string // of that record, lower-case hex
	Time    string // when it was signed, RFC 3339
	Segment int    // the last segment that was removed
}

// tip is the end of what was removed, which the first record there continues.
func (b Beginning) tip() (t tip) {
	if b.Segment == 0 {
		return genesis()
	}
	t.seq = b.Seq
	copy(t.hash[:], b.Hash)
	return t
}

// signBeginning returns the note. Its first line is not that of a checkpoint, so
// that a checkpoint at the end of some segment does not pass for a beginning.
func signBeginning(b Beginning, k *Key) ([]byte, error) {
	raw, err := hex.DecodeString(b.Hash)
	if err != nil {
		return nil, fmt.Errorf("signing a beginning: %w", err)
	}
	text := fmt.Sprintf("%s\n%d\n%s\ntime %s\nsegment %d\n", beginOrigin, b.Seq, base64.StdEncoding.EncodeToString(raw), b.Time, b.Segment)
	signed, err := note.Sign(&note.Note{Text: text}, k.signer)
	if err != nil {
		return nil, fmt.Errorf("signing a beginning: %w", err)
	}
	return signed, nil
}

// parseBeginning takes a note apart. A nil verifier leaves the signature unchecked.
func parseBeginning(text []byte, v note.Verifier) (b Beginning, err error) {
	lines := strings.Split(string(text), "\n")
	if len(lines) != beginLines+1 || lines[0] != beginOrigin || lines[5] != "" || lines[7] != "" {
		return b, errCheckpointForm
	}
	c, err := parseState(lines[1:4])
	if err != nil {
		return b, err
	}
	segment, ok := strings.CutPrefix(lines[4], "segment ")
	number, err := strconv.Atoi(segment)
	if !ok || err != nil || number < 1 || c.seq < 1 || strconv.Itoa(number) != segment {
		return b, errCheckpointForm
	}
	b = Beginning{Seq: c.seq, Hash: string(c.hash[:]), Time: c.time, Segment: number}
	return b, checkSignature(text, lines[6], v)
}

// readBeginning returns the beginning of the log in dir, the zero value when
// nothing was removed. A badCheckpoint is one that cannot be trusted.
func readBeginning(dir string, v note.Verifier) (b Beginning, err error) {
	f, err := os.OpenFile(filepath.Join(dir, beginName), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if isMissing(err) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("opening the beginning of the audit log: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return b, fmt.Errorf("reading the beginning of the audit log: %w", err)
	}
	if b, err = parseBeginning(text, v); err != nil {
		return Beginning{}, fmt.Errorf("%w: where the log begins cannot be trusted: %w", ErrDamaged, err)
	}
	return b, nil
}

// Segments lists the numbers of the segments that the log in dir consists of,
// ascending, and where it begins, which is not authenticated.
func Segments(dir string) ([]int, Beginning, error) { return listed(dir, nil) }

// SegmentPath is the file of segment n of the log in dir.
func SegmentPath(dir string, n int) string { return segmentPath(dir, n) }

// Removable lists the files of segments before the beginning: a prune that did
// not come to its end has left them, and they are no part of the log.
func Removable(dir string) (paths []string, err error) {
	numbers, err := segments(dir)
	if err != nil {
		return nil, err
	}
	b, err := readBeginning(dir, nil)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if n <= b.Segment {
			paths = append(paths, segmentPath(dir, n))
		}
	}
	return paths, nil
}

// listed lists the segments behind the beginning. It reads the directory first: a
// segment that is not there any more was removed after its beginning was written.
func listed(dir string, v note.Verifier) (kept []int, b Beginning, err error) {
	numbers, err := segments(dir)
	if err != nil {
		return nil, b, err
	}
	if b, err = readBeginning(dir, v); err != nil {
		return nil, b, err
	}
	for _, n := range numbers {
		if n > b.Segment {
			kept = append(kept, n)
		}
	}
	return kept, b, nil
}

// wasPruned reports whether err says that a segment is missing because it was
// removed after the segments were listed.
func wasPruned(dir string, number int, err error) bool {
	if !isMissing(err) {
		return false
	}
	b, err := readBeginning(dir, nil)
	return err == nil && number <= b.Segment
}

// Cut ends the removed part of the log with segment through, which must be closed:
// it verifies what is to be removed, calls before, which records it, and brings a
// signed beginning to the disk that every reader accepts from then on. Afterwards the
// files of Removable can be removed in any order, at any time. An error, also one of
// before, means that the log begins where it began.
func (l *Log) Cut(ctx context.Context, through int, before func(Beginning) error) (Beginning, error) {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	b, err := l.cutPoint(ctx, through)
	if err == nil {
		err = before(b)
	}
	if err == nil {
		err = l.begin(b)
	}
	if err != nil {
		return Beginning{}, fmt.Errorf("pruning the audit log: %w", err)
	}
	return b, nil
}

// cutPoint verifies the segments up to through and returns the beginning behind
// them.
func (l *Log) cutPoint(ctx context.Context, through int) (b Beginning, err error) {
	if l.o.Key == nil {
		return b, errors.New("there is no key to sign with")
	}
	if _, err := os.Lstat(segmentPath(l.dir, through+1)); err != nil {
		return b, fmt.Errorf("segment %s is not closed: %w", filepath.Base(segmentPath(l.dir, through)), err)
	}
	w, err := newWalk(l.dir, l.o.Key.verifier)
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
		return b, fmt.Errorf("%w: what is to be removed is not whole: %w", ErrDamaged, err)
	}
	return Beginning{Seq: w.tip.seq, Hash: string(w.tip.hash[:]), Time: stamp(l.o.Now()), Segment: through}, nil
}

// begin signs b and brings it to the disk, with a checkpoint behind it, so that
// there is always one.
func (l *Log) begin(b Beginning) error {
	l.syncMu.Lock()
	err := l.checkpoint()
	l.syncMu.Unlock()
	if err != nil {
		return err
	}
	text, err := signBeginning(b, l.o.Key)
	if err != nil {
		return err
	}
	return replace(l.dir, beginName, text)
}

// TrimCheckpoints removes the checkpoints about less than what was removed.
func (l *Log) TrimCheckpoints() error {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	b, err := readBeginning(l.dir, nil)
	if err != nil || b.Segment == 0 {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.checkpoints.trim(b.Seq); err != nil {
		return fmt.Errorf("trimming the checkpoints: %w", err)
	}
	return nil
}

// trim replaces the file by one without the checkpoints about less than seq
// records.
func (c *checkpointFile) trim(seq uint64) error {
	all, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	at, end := int64(0), min(c.size, int64(len(all)))
	for r := (&checkpointReader{r: newLineReader(strings.NewReader(string(all[:end])))}); ; {
		next, err := r.next()
		if err != nil {
			return err // the last one is about more
		}
		if next.seq >= seq {
			break
		}
		at += int64(len(r.text))
	}
	if at == 0 {
		return nil
	}
	if err := replace(filepath.Dir(c.path), filepath.Base(c.path), all[at:end]); err != nil {
		return err
	}
	c.size = end - at
	return nil
}

// replace makes content the file name of dir: it is the old or the new one at every
// moment, and the new one is on the disk when replace returns without an error.
func replace(dir, name string, content []byte) error {
	draft := filepath.Join(dir, name+".new")
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(draft, filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return syncDir(dir)
}

// Turn has the next record begin a new segment, so that this one can be removed.
func (l *Log) Turn() { l.turn.Store(true) }
