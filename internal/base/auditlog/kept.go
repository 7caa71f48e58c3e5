package auditlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Has reports whether l has the checkpoint of m. It reads only the checkpoints; Open has
// compared the newest of them with the records. After a clean stop m is the newest
// checkpoint, so the file is rarely read.
func Has(l *audit.Log, m audit.Mark) (bool, error) {
	last, any := l.Checkpointed()
	if !any || last.Seq <= m.Seq {
		return any && last.Seq == m.Seq && last.Hash == m.Hash, nil
	}
	f, err := os.OpenFile(filepath.Join(l.Dir(), audit.CheckpointsName), os.O_RDONLY|durable.NoFollow, 0)
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
		if c.Seq >= m.Seq {
			return c.Hash == m.Hash && c.Seq == m.Seq, nil
		}
	}
}

// keptBad returns the error of a log that lacks one of the kept marks; nil: it has all.
func (w *walk) keptBad() error {
	if len(w.kept) == 0 {
		return nil
	}
	k := w.kept[0]
	if k.Seq > w.tip.Seq {
		return w.bad(w.tip.Seq+1, "record %d is missing: the log ends with record %d, but a checkpoint of %s in the database covers %d records; the log was removed, cut, or replaced by an older copy", w.tip.Seq+1, w.tip.Seq, k.Time, k.Seq)
	}
	return w.bad(max(k.Seq, 1), "the checkpoint of %s over %d records, which is in the database, is missing: the log was replaced or its checkpoints were cut", k.Time, k.Seq)
}
