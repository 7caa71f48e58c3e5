package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// retention removes old records: in the background by audit.retain, and by hand.
type retention struct {
	c           config.Retain
	dir         string
	checkpoints *checkpoints
	rotated     chan struct{} // signals that a segment was closed
	clock       steady

	mu sync.Mutex // one prune at a time
}

func newRetention(o Options, c *checkpoints) *retention {
	return &retention{c: o.Config.Audit.Retain, dir: AuditDir(o.StateDir, o.Config), checkpoints: c, rotated: make(chan struct{}, 1)}
}

// Bounds of a segment: small enough for audit.retain to be met closely, and large enough for
// few segments.
const (
	mostSegment  = 16 << 20
	leastSegment = 64 << 10
)

// segmentBytes returns the size at which a segment is closed.
func segmentBytes(r config.Retain) int64 {
	if r.Bytes == 0 {
		return mostSegment
	}
	return min(max(r.Bytes/4, leastSegment), mostSegment)
}

// segmentAge returns the age at which a segment is closed if records are kept for some days:
// a segment is removed as a whole, so it must cover only a small part of that time.
func segmentAge(r config.Retain) time.Duration {
	return max(time.Duration(r.Days)*24*time.Hour/30, time.Hour)
}

// wake makes run check the log. It must not block.
func (r *retention) wake() {
	select {
	case r.rotated <- struct{}{}:
	default:
	}
}

// The intervals between two checks of the log, and after a failure.
const (
	retainEvery = time.Hour
	retainAgain = time.Minute
)

// clockSettles is how long the wall clock must go on evenly after a jump forward before
// records are removed by their age. A jump can be a mistake that is soon corrected, or the end
// of a suspension, or the start of the daemon.
const clockSettles = 10 * time.Minute

// steady notices jumps of the wall clock.
type steady struct {
	mono time.Duration
	wall time.Time
}

// jumped reports whether the wall clock has gained more than an hour since the last call. The
// first call counts as a jump: the clock of a machine that has just started may not be set yet.
// mono is a monotonic time.
func (s *steady) jumped(mono time.Duration, wall time.Time) bool {
	gained := wall.Round(0).Sub(s.wall) - (mono - s.mono)
	first := s.wall.IsZero()
	s.mono, s.wall = mono, wall.Round(0)
	return first || gained > time.Hour
}

// start prunes in the background until end is called.
func (r *retention) start(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	return func() { stop(); done.Wait() }
}

func (r *retention) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	began, settled := time.Now(), time.Time{}
	logged, until := "", time.Time{} // a damaged log is not verified again with each closed segment
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.rotated:
			if time.Now().Before(until) {
				continue
			}
		case <-timer.C:
		}
		if r.clock.jumped(time.Since(began), time.Now()) {
			settled = time.Now().Add(clockSettles)
		}
		pause := retainEvery
		young := time.Until(settled)
		err := r.keep(ctx, young <= 0)
		if young > 0 {
			pause = young
		}
		if err != nil && ctx.Err() == nil {
			if pause = retainAgain; errors.Is(err, audit.ErrDamaged) {
				pause = retainEvery
			}
			until = time.Now().Add(pause)
			if logged != err.Error() {
				logged = err.Error()
				r.checkpoints.o.Log.Warn("the audit log is not pruned; trying again", "err", err)
			}
		}
		timer.Reset(pause)
	}
}

// keep finishes an interrupted prune, and removes the segments that audit.retain does not
// keep. aged: also those that are too old, which needs a clock that can be trusted.
func (r *retention) keep(ctx context.Context, aged bool) error {
	if err := r.finish(); err != nil {
		return err
	}
	now := time.Now()
	bounds := r.bounds(now)
	ahead, err := r.turnOld(now)
	if err != nil {
		return err
	}
	if !aged || ahead {
		bounds.Before = time.Time{}
	}
	plan, err := bounds.Plan(r.dir, now)
	if err != nil || plan.Through == 0 {
		return err
	}
	_, err = r.prune(ctx, plan.Through, nil)
	return err
}

func (r *retention) bounds(now time.Time) retain.Bounds {
	b := retain.Bounds{Bytes: -1, Closed: true}
	if r.c.Days > 0 {
		b.Before = now.AddDate(0, 0, -r.c.Days)
	}
	if r.c.Bytes > 0 {
		b.Bytes = r.c.Bytes
	}
	return b
}

// turnOld makes the next record begin a new segment if the open one is too old or too large.
// ahead reports that the open one began after now: the clock was set back since.
func (r *retention) turnOld(now time.Time) (ahead bool, err error) {
	began, size, err := retain.Opened(r.dir)
	if err != nil || began.IsZero() {
		return false, err
	}
	if r.c.Days > 0 && now.Sub(began) > segmentAge(r.c) || size > 2*segmentBytes(r.c) {
		r.checkpoints.log.Turn()
	}
	return began.After(now), nil
}

func (r *retention) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return retain.Pruner{Log: r.checkpoints.log, Dir: r.dir}.Finish()
}

// prune removes the closed segments up to through for who; nil: for audit.retain. Before
// that, the removal is recorded, and the database gets a checkpoint of the remaining records.
// Without both, nothing is removed.
func (r *retention) prune(ctx context.Context, through int, who *principal.Principal) (audit.Beginning, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkpoints.current(ctx); err != nil {
		return audit.Beginning{}, err
	}
	by := "audit.retain"
	if who != nil {
		by = "operator"
	}
	before := func(b audit.Beginning) error {
		_, err := r.checkpoints.log.Append(&audit.Record{Kind: audit.Event, Source: "audit", Action: "audit.prune", Who: who, Detail: []audit.Field{
			{Name: "through_segment", Value: strconv.Itoa(through)}, {Name: "begins", Value: strconv.FormatUint(b.Seq+1, 10)}, {Name: "by", Value: by}}})
		return err
	}
	b, err := retain.Pruner{Log: r.checkpoints.log, Dir: r.dir, Before: before}.Through(ctx, through)
	if err == nil {
		r.checkpoints.o.Log.Info("audit log pruned", "by", by, "begins", b.Seq+1)
	}
	return b, err
}

// current stores the newest checkpoint in the database. It fails if the log lacks a
// checkpoint of the database: such a log is evidence and must not be changed.
func (c *checkpoints) current(ctx context.Context) error {
	db := c.db.Load()
	if db == nil {
		return errors.New("the database that keeps the audit log's checkpoints cannot be used now")
	}
	if c.lacking.Load() != nil {
		return errors.New("the audit log lacks records that the database knows of: see doorward audit verify")
	}
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	return c.newest(ctx, db)
}

// turn closes the open segment, and returns when the new one has begun.
func (r *retention) turn(who *principal.Principal) error {
	r.checkpoints.log.Turn()
	_, err := r.checkpoints.log.Append(&audit.Record{Kind: audit.Event, Source: "audit", Action: "audit.turn", Who: who})
	return err
}

// order serves `doorward audit prune` in a running daemon.
func (r *retention) order(ctx context.Context, who *principal.Principal, body []byte) (any, int) {
	var ask admin.Prune
	if err := json.Unmarshal(body, &ask); err != nil || ask.Turn == (ask.Through > 0) {
		return nil, http.StatusBadRequest
	}
	var done admin.Pruned
	var err error
	if ask.Turn {
		err = r.turn(who)
	} else {
		var b audit.Beginning
		b, err = r.prune(ctx, ask.Through, who)
		done.Begins = b.Seq + 1
	}
	if err != nil {
		done.Problem = err.Error()
	}
	return done, http.StatusOK
}
