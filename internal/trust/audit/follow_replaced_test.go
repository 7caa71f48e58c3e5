package audit_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// TestFollowingEndsWhenTheLogIsReplaced: who follows a log is told when new records would not
// be seen.
func TestFollowingEndsWhenTheLogIsReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range changesUnderWriter() {
		if strings.Contains(name, "checkpoint") {
			continue // the records can be read
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "audit")
			l := open(t, dir, audit.Options{Key: newKey(t)})
			mustAppend(t, l, decision("before"))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			changed := false
			err := auditlog.Follow(ctx, dir, 1, func(line []byte) error {
				if parse(t, line).Resource == "before" && !changed {
					changed = true
					change(t, dir)
				}
				return nil
			})
			if !changed || !errors.Is(err, audit.ErrDamaged) {
				t.Errorf("changed %v, following ends with %v", changed, err)
			}
		})
	}
}
