package audit

// The beginning of the log. Invariant: a beginning is signed only about the last
// record of a closed segment, and never moves back.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/durable"
)

const (
	beginName   = "begin"
	beginOrigin = Origin + "/begin"
)

// Beginning is the point at which a log begins after its oldest segments were removed:
// behind record Seq, the last record of segment Segment. The zero value means that
// nothing was removed.
type Beginning struct {
	Mark        // of the last removed record; Time is when it was signed
	Segment int // the last segment that was removed
}

// tip returns the last removed record, from which the first remaining record continues the chain.
func (b Beginning) tip() (t tip) {
	if b.Segment == 0 {
		return genesis()
	}
	t.seq = b.Seq
	copy(t.hash[:], b.Hash)
	return t
}

// ReadBeginning returns the beginning of the log in dir, or the zero value when
// nothing was removed. An untrusted beginning is an error that wraps ErrDamaged and a
// BadCheckpoint.
func ReadBeginning(dir string, v note.Verifier) (b Beginning, err error) {
	f, err := os.OpenFile(filepath.Join(dir, beginName), os.O_RDONLY|durable.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("opening the beginning of the audit log: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxCheckpoint))
	if err != nil {
		return b, fmt.Errorf("reading the beginning of the audit log: %w", err)
	}
	if b, err = parseNote(text, v); err == nil && (b.Segment == 0 || b.Seq == 0) {
		err = errCheckpointForm
	}
	if err != nil {
		return Beginning{}, fmt.Errorf("%w: the stored beginning of the log cannot be trusted: %w", ErrDamaged, err)
	}
	return b, nil
}

// Segments returns the numbers of the segments that the log in dir consists of,
// ascending, and its beginning. A nil verifier leaves the beginning
// unauthenticated. Segments reads the directory before the beginning: the beginning is
// written before segments are removed, so it covers every segment missing in the list.
// If dir does not exist, the error wraps fs.ErrNotExist.
func Segments(dir string, v note.Verifier) (kept []int, b Beginning, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, b, fmt.Errorf("listing the audit segments: %w", err)
	}
	if b, err = ReadBeginning(dir, v); err != nil {
		return nil, b, err
	}
	for _, e := range entries {
		if n := SegmentNumber(e.Name()); n > b.Segment {
			kept = append(kept, n)
		}
	}
	slices.Sort(kept)
	return kept, b, nil
}

// Begin makes the log begin behind segment b.Segment, which must be closed. It writes a
// checkpoint and then the signed beginning, which every reader accepts from then on. The
// segments up to b.Segment can afterwards be removed in any order, at any time. The
// caller must have verified their records up to b, which must be the last one. After an
// error the beginning is unchanged.
func (l *Log) Begin(b Beginning) error {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	if l.o.Key == nil {
		return errors.New("there is no key to sign with")
	}
	if err := endsWith(l.dir, b, l.o.Key.Verifier); err != nil {
		return err
	}
	if err := l.secure(); err != nil {
		return err
	}
	text, err := b.sign(l.o.Key)
	if err != nil {
		return err
	}
	return durable.ReplaceLocked(filepath.Join(l.dir, beginName), text)
}

// endsWith checks that b is the last record of a closed segment of the log in dir.
func endsWith(dir string, b Beginning, v note.Verifier) error {
	old, err := ReadBeginning(dir, v)
	switch {
	case err != nil:
		return err
	case b.Segment <= old.Segment:
		return fmt.Errorf("the log begins with segment %d already", old.Segment+1)
	}
	if _, err := os.Lstat(SegmentPath(dir, b.Segment+1)); err != nil {
		return fmt.Errorf("segment %s is not closed: %w", filepath.Base(SegmentPath(dir, b.Segment)), err)
	}
	last, err := lastOf(dir, b.Segment)
	if err == nil && last != b.tip() {
		err = fmt.Errorf("%w: segment %d does not end with record %d", ErrDamaged, b.Segment, b.Seq)
	}
	return err
}

// Verifier returns the verifier of the log's key; nil: the log has no key.
func (l *Log) Verifier() note.Verifier {
	if l.o.Key == nil {
		return nil
	}
	return l.o.Key.Verifier
}

// DropCheckpoints removes the oldest checkpoints from the file: old returns how many
// bytes at the beginning of the file to remove. The last checkpoint must stay.
func (l *Log) DropCheckpoints(old func(all []byte) int) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	c := &l.checkpoints
	all, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("reading the checkpoints: %w", err)
	}
	all = all[:min(c.size, int64(len(all)))]
	n := old(all)
	switch {
	case n == 0:
		return nil
	case n >= len(all) || !bytes.HasPrefix(all[n:], []byte(Origin+"\n")):
		return fmt.Errorf("%w: %d bytes are not the first checkpoints", ErrDamaged, n)
	}
	if err := durable.ReplaceLocked(c.path, all[n:]); err != nil {
		return fmt.Errorf("trimming the checkpoints: %w", err)
	}
	c.size = int64(len(all) - n)
	return nil
}
