//go:build unix

package audit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestALockIsTriedForATenthOfASecond: a reader that holds it shorter keeps no writer out.
func TestALockIsTriedForATenthOfASecond(t *testing.T) {
	t.Parallel()
	for held, free := range map[time.Duration]bool{0: true, time.Millisecond: true, 99 * time.Millisecond: true, 101 * time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			dir, start := t.TempDir(), time.Now()
			reader, err := lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(held, func() { unlock(reader) })
			f, err := lock(dir)
			if took := time.Since(start); (err == nil) != free || !free && !errors.Is(err, ErrLocked) || took > 100*time.Millisecond {
				t.Errorf("held for %v: %v after %v", held, err, took)
			}
			if err == nil {
				unlock(f)
			}
			time.Sleep(time.Second)
		})
	}
}
