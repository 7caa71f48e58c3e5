package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fullEngine is a database that, while full is set, accepts only commits that change nothing.
type fullEngine struct {
	engine
	full atomic.Bool
}

func (e *fullEngine) write(ctx context.Context, job func(*Tx) error) error {
	return e.engine.write(ctx, func(tx *Tx) error {
		err := job(tx)
		if err == nil && tx.changed && e.full.Load() {
			return fmt.Errorf("%w: the disk is full", ErrUnavailable)
		}
		return err
	})
}

// The trouble of a full disk lasts as long as the disk is full, whatever jobs run that
// change nothing, and ends after it even if no job writes.
func TestTheTroubleOfAFullDiskEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := place{dir: t.TempDir()}.open(t, Options{})
		e := &fullEngine{engine: db.engine}
		e.full.Store(true)
		db.engine = e
		if err := db.Write(t.Context(), put("x", 1)); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		for _, later := range []time.Duration{0, retryEvery / 2, retryEvery, 5 * retryEvery} {
			time.Sleep(later)
			must(t, db.Write(t.Context(), func(*Tx) error { return nil }))
			must(t, db.Read(t.Context(), func(*Tx) error { return nil }))
			if db.Trouble() == nil {
				t.Errorf("no trouble while the disk is full")
			}
		}
		e.full.Store(false)
		time.Sleep(2 * retryEvery)
		synctest.Wait()
		must(t, db.Trouble())
	})
}
