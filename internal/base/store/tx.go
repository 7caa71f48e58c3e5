package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

var (
	errOver  = errors.New("store: the transaction has ended")
	errInRow = errors.New("store: a row's function used the transaction")
	errRead  = errors.New("store: a Read must not write")
	errOwn   = errors.New("store: a job must not control its own transaction")
)

// session is one connection of either engine inside a transaction. Arguments
// and values are of the types of values.go.
type session interface {
	exec(ctx context.Context, query string, args []any) (int64, error)
	// query calls row with the values of each row. row may keep the values, but not
	// the slice. query stops at the first error of row and returns it.
	query(ctx context.Context, query string, args []any, row func(values []any) error) error
}

// Tx is a running transaction, valid only inside its job and on the job's
// goroutine. After a statement has failed, each further one fails with the
// same error, and so does the transaction. PostgreSQL behaves so, and SQLite is made to
// behave the same.
type Tx struct {
	ctx    context.Context
	s      session
	now    int64
	notes  []any
	topics []string
	failed error // of the database; a wrong argument or a missing row does not count
	inRow  bool  // the function row of Each is running
	over   bool  // the job has ended

	readOnly bool
	changed  bool // a statement has written a row, or may have
}

// Now returns the time of the transaction in milliseconds since 1970: that of the
// daemon's clock on SQLite, of the database's on PostgreSQL. It is the same throughout a
// transaction.
func (tx *Tx) Now() int64 { return tx.now }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	args, err := tx.ready(query, args)
	if err == nil && tx.readOnly {
		err = errRead
	}
	if err != nil {
		return 0, err
	}
	n, err := tx.s.exec(tx.ctx, query, args)
	tx.changed = tx.changed || n > 0
	return n, tx.note(err)
}

// Row runs a statement that returns one row, such as UPDATE … RETURNING, and
// scans it. The error is ErrNoRow if there is none; of several rows the first is used.
func (tx *Tx) Row(dest []any, query string, args ...any) error {
	args, err := tx.ready(query, args)
	if err != nil {
		return err
	}
	found, wrong := false, error(nil)
	// A wrong dest does not stop the statement, so that its effect does not depend on the scan.
	err = tx.s.query(tx.ctx, query, args, func(values []any) error {
		tx.changed = tx.changed || !reads(query)
		if !found {
			found, wrong = true, scan(dest, values)
		}
		return nil
	})
	switch {
	case err != nil:
		return tx.note(err)
	case !found:
		return ErrNoRow
	}
	return wrong
}

// Each runs a query and calls row for each of its rows; scan fills dest. An
// error of row ends Each and is returned. Otherwise all rows are read before Each
// returns. row must not use the Tx.
func (tx *Tx) Each(row func(scan func(dest ...any) error) error, query string, args ...any) error {
	args, err := tx.ready(query, args)
	if err != nil {
		return err
	}
	var stopped error
	err = tx.s.query(tx.ctx, query, args, func(values []any) error {
		tx.changed = tx.changed || !reads(query)
		tx.inRow = true
		defer func() { tx.inRow = false }()
		stopped = row(func(dest ...any) error { return scan(dest, values) })
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return tx.note(err)
}

// Note adds a note for Options.Record. The notes of a job that fails, or
// of a run that is repeated, are dropped.
func (tx *Tx) Note(n any) { tx.notes = append(tx.notes, n) }

// Signal calls all listeners with topic after the transaction is committed. A topic must
// be short: the payload of PostgreSQL's NOTIFY has less than 8,000 bytes.
func (tx *Tx) Signal(topic string) { tx.topics = append(tx.topics, topic) }

// ready checks that a statement may run now, and converts args to the common types.
func (tx *Tx) ready(query string, args []any) ([]any, error) {
	switch {
	case tx.over:
		return nil, errOver
	case tx.inRow:
		return nil, errInRow
	case tx.failed != nil:
		return nil, tx.failed
	case steers(query):
		return nil, errOwn
	}
	return arguments(args)
}

// unaccounted reports whether the job changed something and noted nothing.
func (tx *Tx) unaccounted() bool { return tx.changed && len(tx.notes) == 0 }

// reads reports whether a statement that returns rows changes none.
func reads(query string) bool {
	query = strings.TrimLeft(query, " \t\r\n")
	return strings.EqualFold(query[:wordEnd(query)], "SELECT")
}

// steers reports whether a statement controls transactions, or the connection or file. A
// job may not run one: a COMMIT would skip Options.Record.
func steers(query string) bool {
	query = strings.TrimLeft(query, " \t\r\n")
	switch strings.ToUpper(query[:wordEnd(query)]) {
	case "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "ABORT", "PRAGMA", "ATTACH", "DETACH", "VACUUM":
		return true
	}
	return false
}

func (tx *Tx) note(err error) error {
	if err != nil && tx.failed == nil {
		tx.failed = err
	}
	return err
}

// outcome returns the error of a job that returned err: a job that returns nil after a
// statement has failed fails too.
func (tx *Tx) outcome(err error) error {
	if err == nil && tx.failed != nil {
		err = fmt.Errorf("the job went on after a failure: %w", tx.failed)
	}
	return err
}

// counters count for Stats.
type counters struct {
	jobs, commits, retries, compiled atomic.Int64
}

func (c *counters) stats() Stats {
	return Stats{Jobs: c.jobs.Load(), Commits: c.commits.Load(), Retries: c.retries.Load(), Compiled: c.compiled.Load()}
}
