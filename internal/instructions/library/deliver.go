package library

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// Delivery is the delivery of one text. Session, Template and Revision identify its kind.
type Delivery struct {
	Ref       string // of the watermark
	Session   string
	Principal string
	Template  string
	Revision  string
	Bytes     int
}

// Delivered counts the deliveries of one kind.
type Delivered struct {
	Delivery    // Bytes is the sum
	First, Last time.Time
	Count       int64
}

const (
	deliveriesKept = 30 * 24 * time.Hour
	countEvery     = time.Minute // how often repetitions are written
	pruneEvery     = time.Hour
	// maxPending bounds the counts that wait while the database is unavailable, and the
	// kinds that are remembered as written.
	maxPending = 10_000
	// rowsKept is how many kinds the database keeps for an installation; the oldest are
	// deleted. rowsRecent is how many of them Recent returns.
	rowsKept   = 200_000
	rowsRecent = 10_000
	// maxTrim bounds the rows that one transaction deletes.
	maxTrim = 20_000
)

// ErrFull: too many deliveries are waiting to be stored.
var ErrFull = errors.New("too many deliveries are waiting to be stored")

// kind identifies what one row counts.
type kind struct{ session, template, revision string }

// ledger counts deliveries. A new kind is written within a second, its
// repetitions within a minute. A crash loses the waiting counts; the audit log
// has each delivery, and Restore brings a kind back from it.
type ledger struct {
	db           *store.DB
	installation string
	most         int
	rows         int64 // the number of rows that are kept

	writing sync.Mutex // held while rows are written
	mu      sync.Mutex // guards the fields below
	pending map[kind]*Delivered
	known   map[kind]bool // kinds that have a row
	fresh   bool          // a kind without a row is pending
	counted time.Time     // when all counts were last written
	pruned  time.Time
	there   int64 // an upper bound of the rows in the database; negative: unknown
}

func newLedger(db *store.DB, installation string, most, rows int) *ledger {
	return &ledger{db: db, installation: installation, most: most, pending: make(map[kind]*Delivered), known: make(map[kind]bool),
		rows: int64(rows), there: -1}
}

// Deliver counts a delivery for `access` and the watermark. It does not wait. The error
// is ErrFull: the delivery was not counted.
func (l *Library) Deliver(_ context.Context, d Delivery) error {
	return l.ledger.add(d, l.o.Now())
}

func (g *ledger) add(d Delivery, now time.Time) error {
	k := kind{d.Session, d.Template, d.Revision}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pending[k]
	if p == nil {
		if len(g.pending) >= g.most {
			return ErrFull
		}
		p = &Delivered{Delivery: d, First: now}
		p.Bytes = 0
		g.pending[k] = p
		g.fresh = g.fresh || !g.known[k]
	}
	p.Bytes += d.Bytes
	p.Count++
	p.Last = now
	return nil
}

// Restore adds deliveries of one kind that are known from another source and have no row.
// The error is that of Deliver.
func (l *Library) Restore(d Delivered) error {
	g := l.ledger
	k := kind{d.Session, d.Template, d.Revision}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pending[k]; p != nil { // it was delivered again meanwhile
		p.First, p.Bytes, p.Count = d.First, p.Bytes+d.Bytes, p.Count+d.Count
		return nil
	}
	if len(g.pending) >= g.most {
		return ErrFull
	}
	g.pending[k] = &d
	g.fresh = g.fresh || !g.known[k]
	return nil
}

// tend writes counts that are due, and deletes old rows.
func (g *ledger) tend(ctx context.Context, now time.Time) error {
	g.mu.Lock()
	due := g.fresh || len(g.pending) > 0 && now.Sub(g.counted) >= countEvery
	prune := now.Sub(g.pruned) >= pruneEvery
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, dbTime)
	defer cancel()
	if due {
		if err := g.flush(ctx, now); err != nil {
			return err
		}
	}
	if prune {
		if err := g.prune(ctx, now); err != nil {
			return err
		}
	}
	return g.trim(ctx)
}

// trim deletes the oldest rows when there are too many, and a hundredth more, so that it
// is not needed again at the next delivery.
func (g *ledger) trim(ctx context.Context) error {
	g.mu.Lock()
	fits := g.there >= 0 && g.there <= g.rows
	g.mu.Unlock()
	if fits {
		return nil
	}
	g.writing.Lock() // no row is added meanwhile
	defer g.writing.Unlock()
	there, err := g.count(ctx)
	if err == nil && there > g.rows {
		there, err = g.remove(ctx, there, min(there-(g.rows-g.rows/100), maxTrim))
	}
	if err != nil {
		return fmt.Errorf("forgetting the oldest deliveries: %w", err)
	}
	g.mu.Lock()
	g.there = there
	g.mu.Unlock()
	return nil
}

// count counts the rows, up to the number that one trim can handle.
func (g *ledger) count(ctx context.Context) (n int64, err error) {
	err = g.db.Read(ctx, func(tx *store.Tx) error {
		return tx.Row([]any{&n}, `SELECT count(*) FROM (SELECT 1 FROM instruct_deliveries WHERE installation = ?1 LIMIT ?2) AS counted`,
			g.installation, g.rows+maxTrim)
	})
	return n, err
}

// remove deletes the n oldest rows, and returns how many of the rows there are left.
func (g *ledger) remove(ctx context.Context, there, n int64) (left int64, err error) {
	err = g.db.Write(ctx, func(tx *store.Tx) error {
		gone, err := tx.Exec(`DELETE FROM instruct_deliveries WHERE installation = ?1 AND (session, template, revision) IN
			(SELECT session, template, revision FROM instruct_deliveries WHERE installation = ?1
			ORDER BY last_at, session, template, revision LIMIT ?2)`, g.installation, n)
		left = there - gone
		return err
	})
	return left, err
}

// flush writes all pending counts. Counts that cannot be written stay pending.
func (g *ledger) flush(ctx context.Context, now time.Time) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	out, fresh := g.takeOut(now)
	if len(out) == 0 {
		return nil
	}
	err := g.db.Write(ctx, func(tx *store.Tx) error {
		for _, d := range out {
			if err := g.row(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		g.putBack(out, fresh)
		return err
	}
	g.mu.Lock()
	if g.there >= 0 {
		g.there += int64(len(fresh))
	}
	g.mu.Unlock()
	return nil
}

// takeOut returns all pending counts, and the kinds among them that have no row. It marks
// them as having one, for deliveries that are counted meanwhile.
func (g *ledger) takeOut(now time.Time) (out map[kind]*Delivered, fresh []kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	out = g.pending
	g.pending, g.fresh, g.counted = make(map[kind]*Delivered), false, now
	if len(g.known)+len(out) > g.most {
		clear(g.known) // a kind that is taken for a new one is only written sooner
	}
	for k := range out {
		if !g.known[k] {
			fresh = append(fresh, k)
		}
		g.known[k] = true
	}
	return out, fresh
}

// row adds counts to a row, or inserts it.
func (g *ledger) row(tx *store.Tx, d *Delivered) error {
	_, err := tx.Exec(`INSERT INTO instruct_deliveries (installation, session, template, revision, ref, principal, bytes, times, first_at, last_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
		ON CONFLICT (installation, session, template, revision) DO UPDATE SET
			bytes = instruct_deliveries.bytes + excluded.bytes, times = instruct_deliveries.times + excluded.times, last_at = excluded.last_at`,
		g.installation, d.Session, d.Template, d.Revision, d.Ref, d.Principal, d.Bytes, d.Count, d.First.UnixMilli(), d.Last.UnixMilli())
	if err != nil {
		return fmt.Errorf("counting a delivery: %w", err)
	}
	return nil
}

// putBack merges counts that could not be written with those counted since.
func (g *ledger) putBack(out map[kind]*Delivered, fresh []kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, d := range out {
		if since := g.pending[k]; since != nil {
			d.Bytes += since.Bytes
			d.Count += since.Count
			d.Last = since.Last
		}
		g.pending[k] = d
	}
	for _, k := range fresh {
		delete(g.known, k)
	}
	g.fresh = true // all of them are tried again soon
}

func (g *ledger) prune(ctx context.Context, now time.Time) error {
	err := g.db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`DELETE FROM instruct_deliveries WHERE installation = ?1 AND last_at < ?2`,
			g.installation, now.Add(-deliveriesKept).UnixMilli())
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting old deliveries: %w", err)
	}
	g.mu.Lock()
	g.pruned, g.there = now, -1
	g.mu.Unlock()
	return nil
}

// Deliveries returns the latest 200,000 kinds of the last 30 days, latest first. It
// writes the pending counts before.
func (l *Library) Deliveries(ctx context.Context) ([]Delivered, error) {
	return l.deliveries(ctx, ``, l.ledger.rows)
}

// Recent returns the latest 10,000 of Deliveries.
func (l *Library) Recent(ctx context.Context) ([]Delivered, error) {
	return l.deliveries(ctx, ``, min(rowsRecent, l.ledger.rows))
}

// Delivered returns the latest delivery of the last 30 days with a ref, and whether there
// is one.
func (l *Library) Delivered(ctx context.Context, ref string) (Delivered, bool, error) {
	found, err := l.deliveries(ctx, `AND ref = ?4`, 1, ref)
	if err != nil || len(found) == 0 {
		return Delivered{}, false, err
	}
	return found[0], true, nil
}

// deliveries writes the pending counts, and returns the latest rows that also match a
// condition, whose arguments begin at ?4.
func (l *Library) deliveries(ctx context.Context, and string, most int64, args ...any) ([]Delivered, error) {
	now := l.o.Now()
	if err := l.ledger.flush(ctx, now); err != nil {
		return nil, fmt.Errorf("storing deliveries: %w", err)
	}
	args = append([]any{l.o.Installation, now.Add(-deliveriesKept).UnixMilli(), most}, args...)
	var out []Delivered
	err := l.o.DB.Read(ctx, func(tx *store.Tx) error {
		out = nil
		return tx.Each(func(scan func(...any) error) error {
			var d Delivered
			var first, last int64
			err := scan(&d.Session, &d.Template, &d.Revision, &d.Ref, &d.Principal, &d.Bytes, &d.Count, &first, &last)
			d.First, d.Last = time.UnixMilli(first), time.UnixMilli(last)
			out = append(out, d)
			return err
		}, `SELECT session, template, revision, ref, principal, bytes, times, first_at, last_at FROM instruct_deliveries
			WHERE installation = ?1 AND last_at >= ?2 `+and+` ORDER BY last_at DESC, session, template, revision LIMIT ?3`, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("reading deliveries: %w", err)
	}
	return out, nil
}
