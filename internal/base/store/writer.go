package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
)

// groupMax is the most jobs that share a COMMIT.
const groupMax = 128

// writer is the one goroutine that writes a SQLite database. It takes all waiting
// jobs, and those that begin to wait while these run, runs each in a SAVEPOINT of its own
// in one transaction, and commits once for all of them: one sync for a group, without a
// timer to form one.
//
// A job runs on its caller's goroutine while the writer waits for it, so a job
// that panics or ends its goroutine does not affect others.
type writer struct {
	o      Options
	hub    *hub
	count  *counters
	open   func(context.Context) (*sqliteConn, error)
	conn   *sqliteConn // nil: begin opens it again
	jobs   chan *write // without a buffer, so that a waiting caller can still give up
	ending chan struct{}
	done   chan struct{}
	down   bool // the last group could not be written, and this was logged
}

// write is one job of a caller of Write.
type write struct {
	job   func(*Tx) error
	taken atomic.Bool // set by the writer, which then runs the job, or by a caller that gives up
	turn  chan *Tx    // from the writer: the transaction of the job
	ran   chan error  // to the writer: the job has ended, with this error
	done  chan error  // from the writer: the result of Write
	tx    *Tx         // the transaction of the job, for the writer
}

// errDied is the error of a job that did not return.
var errDied = errors.New("the job panicked")

func newWriter(o Options, first *sqliteConn, open func(context.Context) (*sqliteConn, error), h *hub, count *counters) *writer {
	w := &writer{o: o, hub: h, count: count, open: open, conn: first,
		jobs: make(chan *write), ending: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *writer) now() int64 { return w.o.Now().UnixMilli() }

// write passes a job to the writer, runs it when its turn comes, and returns the result.
// It runs on the caller's goroutine.
func (w *writer) write(ctx context.Context, job func(*Tx) error) error {
	j := &write{job: job, turn: make(chan *Tx), ran: make(chan error, 1), done: make(chan error, 1)}
	select {
	case w.jobs <- j:
	case <-w.ending:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case tx := <-j.turn:
		j.run(tx)
	case err := <-j.done:
		return err
	case <-ctx.Done():
		if j.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		select {
		case tx := <-j.turn:
			j.run(tx)
		case err := <-j.done:
			return err
		}
	}
	return <-j.done
}

func (j *write) run(tx *Tx) {
	err := errDied
	defer func() {
		tx.over = true
		j.ran <- err
	}()
	err = j.job(tx)
}

func (w *writer) run() {
	defer close(w.done)
	for {
		select {
		case <-w.ending:
			return
		case j := <-w.jobs:
			for js := w.waiting([]*write{j}); len(js) > 0; {
				js = w.group(js)
			}
		}
	}
}

// group is the jobs that share one transaction of the writer.
type group struct {
	w      *writer
	jobs   []*write // in their order
	next   int      // index of the first one that has not begun
	good   []*write // those that have run without an error
	failed bool     // one has failed
}

// group runs jobs, and those that join them, in one transaction and answers them. It
// returns those that have not begun, when a failure of the database ended the transaction
// before their turn.
func (w *writer) group(js []*write) (rest []*write) {
	if err := w.begin(); err != nil {
		refuseAll(js, err)
		return nil
	}
	g := &group{w: w, jobs: js}
	for j := g.take(); j != nil; j = g.take() {
		if !g.run(j) {
			return g.jobs[g.next:]
		}
	}
	w.finish(g.good)
	return nil
}

// refuseAll answers jobs that have not begun with err.
func refuseAll(js []*write, err error) {
	for _, j := range js {
		if j.taken.CompareAndSwap(false, true) {
			j.done <- err
		}
	}
}

// take returns the next job whose caller has not given up; nil: there is none.
func (g *group) take() *write {
	for {
		// The caller of a job that failed is answered and may come back at once, again and
		// again, while the good jobs wait.
		if g.next == len(g.jobs) && (!g.failed || len(g.good) == 0) {
			g.jobs = g.w.joined(g.jobs)
		}
		if g.next == len(g.jobs) {
			return nil
		}
		j := g.jobs[g.next]
		g.next++
		if j.taken.CompareAndSwap(false, true) {
			return j
		}
	}
}

// run runs a job, and answers it if it fails. It reports whether the transaction goes on.
func (g *group) run(j *write) bool {
	err := g.w.one(j)
	if err == nil {
		g.good = append(g.good, j)
		return true
	}
	g.failed = true
	goes := g.w.conn != nil && g.w.conn.inTransaction()
	if !goes {
		g.w.lost(g.good, err)
	}
	j.done <- err
	return goes
}

// waiting returns js and the jobs that wait behind them, at most groupMax.
func (w *writer) waiting(js []*write) []*write {
	for len(js) < groupMax {
		select {
		case j := <-w.jobs:
			js = append(js, j)
		default:
			return js
		}
	}
	return js
}

// joined returns js, which have run, and the jobs that have begun to wait meanwhile. Several
// jobs have several callers, of which others may be about to wait: joined lets them run
// first.
func (w *writer) joined(js []*write) []*write {
	if len(js) > 1 && len(js) < groupMax {
		runtime.Gosched()
	}
	return w.waiting(js)
}

// begin begins a transaction. It opens the connection again if giveUp has closed it.
func (w *writer) begin() (err error) {
	if w.conn == nil {
		if w.conn, err = w.open(context.Background()); err != nil {
			w.conn = nil
			w.fails(err)
			return unavailable(err)
		}
	}
	if err = w.exec("BEGIN IMMEDIATE"); err != nil {
		w.fails(err)
		w.giveUp()
		return unavailable(err)
	}
	return nil
}

// fails logs that the store accepts no writes, and works that it accepts them again. Each
// logs only the change.
func (w *writer) fails(err error) {
	if !w.down {
		w.o.Log.Error("the store accepts no writes", slog.Any("error", err))
	}
	w.down = true
}

func (w *writer) works() {
	if w.down {
		w.o.Log.Info("the store accepts writes again")
	}
	w.down = false
}

func (w *writer) exec(query string) error {
	_, err := w.conn.exec(context.Background(), query, nil)
	return err
}

// one lets a job run in the transaction, and rolls its changes back if it fails.
func (w *writer) one(j *write) error {
	if err := w.exec("SAVEPOINT job"); err != nil {
		return unavailable(err)
	}
	tx := &Tx{ctx: context.Background(), s: w.conn, now: w.now()}
	j.tx = tx
	j.turn <- tx
	err := tx.outcome(<-j.ran)
	if err == nil && w.conn.owesKeys() {
		err = errors.New("store: a foreign key constraint is violated")
	}
	if err != nil {
		if back := w.exec("ROLLBACK TO job"); back != nil {
			w.giveUp()
			return errors.Join(err, unavailable(back))
		}
	}
	if release := w.exec("RELEASE job"); release != nil {
		w.giveUp()
		return errors.Join(err, unavailable(release))
	}
	return err
}

// finish records and commits the good jobs, answers them and publishes their signals, in
// this order.
func (w *writer) finish(good []*write) {
	var notes []any
	var topics []string
	for _, j := range good {
		notes = append(notes, j.tx.notes...)
		topics = append(topics, j.tx.topics...)
	}
	if len(good) == 0 {
		w.rollback()
		return
	}
	if len(notes) > 0 {
		if err := w.o.Record(notes); err != nil {
			w.rollback()
			answer(good, fmt.Errorf("%w: %w", ErrRecord, err))
			return
		}
	}
	if err := w.exec("COMMIT"); err != nil {
		w.fails(err)
		w.giveUp()
		err = uncommitted(err)
		if len(notes) > 0 {
			w.o.Uncommitted(notes, err)
		}
		answer(good, err)
		if errors.Is(err, ErrUncertain) {
			w.hub.publish("") // it may have been done
		}
		return
	}
	if slices.ContainsFunc(good, func(j *write) bool { return j.tx.changed }) {
		w.works()
	}
	w.count.commits.Add(1)
	w.count.jobs.Add(int64(len(good)))
	answer(good, nil)
	w.hub.publish(topics...)
}

// uncommitted returns the result of jobs whose COMMIT failed with err. After an I/O error a
// recovery may still find the written pages, and a driver that panicked may have
// committed.
func uncommitted(err error) error {
	if errors.Is(err, sqlite3.IOERR) || errors.Is(err, errDriver) {
		return fmt.Errorf("%w: %w", ErrUncertain, unavailable(err))
	}
	return unavailable(err)
}

func answer(js []*write, err error) {
	for _, j := range js {
		j.done <- err
	}
}

// lost fails the jobs that had already run in a transaction that was rolled back.
func (w *writer) lost(good []*write, err error) {
	w.fails(err)
	w.giveUp()
	answer(good, fmt.Errorf("%w: another job of the group failed: %w", ErrUnavailable, err))
}

func (w *writer) rollback() {
	if err := w.exec("ROLLBACK"); err != nil {
		w.giveUp()
	}
}

// giveUp closes a connection whose state is unknown; the next group opens another one. In
// this way the writer also recovers when there is space again.
func (w *writer) giveUp() {
	if w.conn == nil {
		return
	}
	_ = w.exec("ROLLBACK")
	if err := w.conn.Close(); err != nil {
		w.o.Log.Warn("closing a connection of the store", slog.Any("error", err))
	}
	w.conn = nil
}

// stop refuses further jobs and waits for the running group.
func (w *writer) stop() {
	close(w.ending)
	<-w.done
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	err := w.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(err, w.conn.Close())
}

// unavailable wraps err with ErrUnavailable, unless it does so already.
func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
