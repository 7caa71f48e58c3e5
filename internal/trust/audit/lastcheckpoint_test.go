package audit_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
)

// A start accepts a last checkpoint only if the log verifies after the start, whichever byte
// of the checkpoint, or of the empty line before it, is missing or doubled.
func TestAStartAcceptsWhatVerifies(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := t.TempDir()
	for range 3 {
		mustClose(t, open(t, dir, audit.Options{Key: key}))
	}
	text := readFile(t, filepath.Join(dir, audit.CheckpointsName))
	last := bytes.LastIndex(text, []byte("\n\n"+audit.Origin+"\n")) + 1
	for i := last; i < len(text); i++ {
		for what, changed := range map[string][]byte{
			"missing": slices.Delete(bytes.Clone(text), i, i+1),
			"doubled": slices.Insert(bytes.Clone(text), i, text[i]),
		} {
			copied := copyDir(t, dir)
			writeFile(t, filepath.Join(copied, audit.CheckpointsName), changed)
			l, err := audit.Open(copied, audit.Options{Key: key})
			if err != nil {
				if !errors.Is(err, audit.ErrDamaged) {
					t.Errorf("byte %d %s: %v", i-last, what, err)
				}
				continue
			}
			mustClose(t, l)
			if r := verify(t, copied, key); !r.OK {
				t.Errorf("byte %d %s: a start accepts it, and verify says: %s", i-last, what, r.Reason)
			}
		}
	}
}
