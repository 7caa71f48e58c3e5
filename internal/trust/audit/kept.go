package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Mark is the content of a checkpoint without its signature: the log had Seq
// records, the last of them with that hash. Kept outside the log, it
// distinguishes a log that was removed or replaced by an older copy from a log
// that is still empty.
type Mark struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"` // lower-case hex
	Time string `json:"time"` // of the checkpoint, RFC 3339
}

func (c checkpoint) mark() Mark { return Mark{Seq: c.seq, Hash: string(c.hash[:]), Time: c.time} }

// Checkpointed is the newest checkpoint of the log, also after Close; false:
// there is none.
func (l *Log) Checkpointed() (Mark, bool) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.checkpoints.last.mark(), l.checkpoints.any
}

// Has reports whether the log has the checkpoint that m is about. It looks at the
// checkpoints alone, which Open has compared with the records; that is the newest
// one after a clean stop, so that the others are rarely read.
func (l *Log) Has(m Mark) (bool, error) {
	last, any := l.Checkpointed()
	if !any || last.Seq <= m.Seq {
		return any && last.Seq == m.Seq && last.Hash == m.Hash, nil
	}
	f, err := os.OpenFile(filepath.Join(l.dir, checkpointsName), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("opening the checkpoints: %w", err)
	}
	defer f.Close()
	r := &checkpointReader{r: newLineReader(f)}
	for {
		c, err := r.next()
		switch {
		case err == io.EOF, errors.Is(err, errUnfinished):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading the checkpoints: %w", err)
		}
		if c.seq >= m.Seq {
			return c.mark().Hash == m.Hash && c.seq == m.Seq, nil
		}
	}
}

// keptBad returns what is wrong with a log that lacks a mark; nil: it lacks none.
func (w *walk) keptBad() error {
	if len(w.kept) == 0 {
		return nil
	}
	k := w.kept[0]
	if k.Seq > w.tip.seq {
		return w.bad(w.tip.seq+1, "record %d is missing: the log ends with record %d, but the database keeps a checkpoint of %s that says that there were %d; it was removed, cut, or replaced by an older copy", w.tip.seq+1, w.tip.seq, k.Time, k.Seq)
	}
	return w.bad(max(k.Seq, 1), "the checkpoint of %s about %d records, which the database keeps, is missing: the log was replaced or its checkpoints were cut", k.Time, k.Seq)
}
