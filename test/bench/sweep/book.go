//go:build linux

package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/doorward/doorward/internal/base/store"
	product "github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// book is the daemon's database, opened by a second process.
type book struct {
	db    *sql.DB
	model string // the id of the message that the others are copies of
	added atomic.Int64
}

func open(path, model string) (*book, error) {
	db, err := driver.Open("file:" + path + "?_txlock=immediate&_pragma=busy_timeout(120000)")
	if err != nil {
		return nil, err
	}
	return &book{db: db, model: model}, nil
}

func (b *book) close() { _ = b.db.Close() }

const (
	// batch is the number of deliveries of one transaction. It is small because the daemon waits meanwhile.
	batch  = 2000
	number = `WITH RECURSIVE c(i) AS (SELECT ?2 + 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?2 + ?3) `
	id     = `substr(message_id, 1, 18) || substr('00000000' || c.i, -8)`
)

// copies are the statements that add confirmed deliveries whose retention has ended.
var copies = []string{
	`INSERT INTO messages ` + number + `SELECT ` + id + `, ` + id + `, '', 0, kind, priority, subject, body, bytes, sha256, repeats, refs, 1, ttl,
		ack_deadline, sender_id, from_name, from_namespace, from_principal, from_grade, from_epoch FROM messages, c WHERE message_id = ?1`,
	`INSERT INTO deliveries ` + number + `SELECT ` + id + `, peer_id, sender_id, (SELECT last_seq FROM mailboxes m WHERE m.peer_id = deliveries.peer_id) + c.i - ?2,
		'acked', c.i, address, from_name, thread_id, lineage, authority, sig, bytes, 1, 1, 0, expires_at, 0, 1, 1, 1, '', '', 0, '', 0, ''
		FROM deliveries, c WHERE message_id = ?1`,
	`UPDATE mailboxes SET accepted = accepted + ?3, acked = acked + ?3, last_seq = last_seq + ?3
		WHERE peer_id = (SELECT peer_id FROM deliveries WHERE message_id = ?1)`,
}

// add adds n deliveries.
func (b *book) add(ctx context.Context, n int) error {
	for n > 0 {
		size := min(n, batch)
		tx, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("adding deliveries: %w", err)
		}
		for _, query := range copies {
			if _, err = tx.ExecContext(ctx, query, b.model, b.added.Load(), size); err != nil {
				_ = tx.Rollback()
				return fmt.Errorf("adding deliveries: %w", err)
			}
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("adding deliveries: %w", err)
		}
		b.added.Add(int64(size))
		n -= size
	}
	return nil
}

// left counts the deliveries whose deletion is due.
func (b *book) left() (n int64, err error) {
	err = b.db.QueryRow(`SELECT count(*) FROM deliveries WHERE state = 'acked' AND due < 1000000000`).Scan(&n)
	return n, err
}

// look reads the open deliveries ten times a second and records how late each was when last seen.
// A delivery that was never seen overdue counts as in time.
func (b *book) look(ctx context.Context, into *late) error {
	type row struct {
		id  string
		due int64
	}
	open := make(map[row]time.Duration)
	for {
		rows, err := b.db.QueryContext(ctx, `SELECT message_id, due FROM deliveries WHERE state IN ('held', 'queued', 'leased')`)
		if err != nil {
			return fmt.Errorf("reading open deliveries: %w", err)
		}
		now, there := time.Now(), make(map[row]bool)
		for rows.Next() {
			var r row
			if err := rows.Scan(&r.id, &r.due); err != nil {
				return fmt.Errorf("reading open deliveries: %w", err)
			}
			there[r] = true
			open[r] = max(0, now.Sub(time.UnixMilli(r.due)))
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("reading open deliveries: %w", err)
		}
		for r, d := range open {
			if !there[r] {
				into.add(d)
				delete(open, r)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 10):
		}
	}
}

// sound runs fsck on the database of a stopped daemon, and fails if the books do not balance.
func sound(dir string) error {
	ctx := context.Background()
	db, err := store.Open(ctx, store.Options{Dir: dir, Migrations: product.Migrations(), Record: func([]any) error { return nil }})
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := mail.Open(ctx, db, mail.Options{Node: "sweep", Sign: func(...string) string { return "" }, Upkeep: func(*mail.Upkeep) any { return "swept" }})
	if err != nil {
		return err
	}
	c, err := b.Desk().Fsck(ctx, false, func(*mail.Check) any { return "checked" })
	if err != nil {
		return err
	}
	fmt.Printf("fsck: %d accepted, %v, %d problems\n", c.Accepted, c.States, len(c.Problems))
	if !c.OK {
		return fmt.Errorf("the books do not balance: %v", c.Problems)
	}
	return nil
}
