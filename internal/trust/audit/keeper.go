package audit

// The keeper. Invariant: new records are synced within Interval and covered by a
// checkpoint within CheckpointEvery, and a failed sync is final. So is a segment that
// was removed, replaced or shortened, and a file of checkpoints that was removed or
// shortened.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// alarm wakes the keeper. Log.mu guards ticking.
type alarm struct {
	ticking bool // the keeper runs again within laterDelay without being woken
	kick    chan struct{}
}

// wake makes the keeper run within laterDelay. It costs a channel operation only when
// the keeper was idle.
func (a *alarm) wake() {
	if a.ticking {
		return
	}
	a.ticking = true
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// keep runs until stop is closed. It writes Later records that no Append wrote,
// syncs, and writes checkpoints. It sleeps while there is nothing to do.
func (l *Log) keep() {
	defer close(l.gone)
	tick := min(laterDelay, l.o.Interval)
	timer := time.NewTimer(tick)
	synced := time.Now()
	for {
		select {
		case <-l.stop:
			return
		case <-l.alarm.kick:
			timer.Reset(tick)
		case <-timer.C:
			l.flush()
			if now := time.Now(); now.Sub(synced) >= l.o.Interval-tick/2 {
				_ = l.synced() // a failure is kept in broken
				synced = now
			}
			timer.Reset(l.rest(tick))
		}
	}
}

// rest writes a checkpoint when one is due, and returns how long the keeper may sleep.
func (l *Log) rest(tick time.Duration) time.Duration {
	due := l.keepChecked()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm.ticking = l.broken == nil && (l.dirty || len(l.next.items) > 0); l.alarm.ticking {
		return tick
	}
	return max(due, tick)
}

// flush writes the waiting Later records.
func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next.items) > 0 {
		_ = l.settle(l.next) // a failure is counted and kept in trouble
	}
}

// synced is sync for callers without syncMu.
func (l *Log) synced() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.sync()
}

// keepChecked writes a checkpoint when one is due, and returns the time until the next.
func (l *Log) keepChecked() time.Duration {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	covered := l.o.Key == nil || l.tip.seq == l.checkpoints.last.Seq
	l.mu.Unlock()
	wait := time.Until(l.nextCheck)
	switch {
	case covered:
		return l.o.CheckpointEvery // or when something is written
	case wait > 0:
		return wait
	}
	l.nextCheck = time.Now().Add(l.o.CheckpointEvery)
	if err := l.checkpoint(); err != nil {
		l.o.Log.Error("audit checkpoint could not be written; trying again", "error", err)
	}
	return l.o.CheckpointEvery
}

// sync syncs all records up to the tip to the disk. The caller holds syncMu.
func (l *Log) sync() error {
	l.mu.Lock()
	f, end, dirty, broken := l.seg.file, l.end, l.dirty, l.broken
	l.dirty = false
	l.mu.Unlock()
	if broken != nil || !dirty || f == nil {
		return broken
	}
	return l.final(toDisk(f, end))
}

// toDisk syncs f, whose last record ends at end. It fails if f was removed, replaced or
// shortened too, because its records cannot be read then.
func toDisk(f *os.File, end int64) error {
	if err := cmp.Or(durable.SyncData(f), inPlace(f, end)); err != nil {
		return fmt.Errorf("bringing the audit log to the disk: %w", err)
	}
	return nil
}

// final makes err, if it is not nil, final for the log, and returns it: see the package
// comment on a failed fsync.
func (l *Log) final(err error) error {
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
		l.o.Log.Error("audit log cannot be continued; every act that needs a record is refused until a restart", "error", err)
	}
	return err
}

// secure syncs the log and, if there is a key, covers it with a checkpoint.
func (l *Log) secure() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.checkpoint()
}

// checkpoint syncs the log and, if there is a key, writes a checkpoint of the tip that it
// had before. The caller holds syncMu.
func (l *Log) checkpoint() error {
	l.mu.Lock()
	c := Mark{Seq: l.tip.seq, Hash: string(l.tip.hash[:]), Time: Stamp(l.o.Now())}
	l.mu.Unlock()
	if err := l.sync(); err != nil || l.o.Key == nil {
		return err
	}
	if l.checkpoints.any && l.checkpoints.last.Seq == c.Seq {
		return nil
	}
	err := l.checkpoints.add(c, l.o.Key)
	if errors.Is(err, ErrDamaged) {
		return l.final(err)
	}
	if err == nil && l.o.Checkpointed != nil {
		l.o.Checkpointed(c)
	}
	return err
}
