package store

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/doorward/doorward/test/doortest"
)

// The statements of a send: a number from the mailbox's counter and a row.
const (
	benchNumber = `UPDATE kv SET n = n + 1 WHERE k = ?1 RETURNING n`
	benchInsert = `INSERT INTO log (id, box, seq) VALUES (?1, ?2, ?3)`
)

var benchBody = strings.Repeat("x", 1024)

// BenchmarkWrite compares the store with a bare loop over database/sql that is
// as durable: WAL, synchronous FULL, one connection, prepared statements.
func BenchmarkWrite(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("bare/%d", writers), func(b *testing.B) { benchBare(b, writers) })
		b.Run(fmt.Sprintf("sqlite/%d", writers), func(b *testing.B) { benchStore(b, place{dir: b.TempDir()}, writers) })
		b.Run(fmt.Sprintf("postgres/%d", writers), func(b *testing.B) { benchStore(b, place{dsn: doortest.Postgres(b)}, writers) })
	}
}

// spread runs b.N writes on that many goroutines and reports their rate.
func spread(b *testing.B, writers int, write func(i int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range writers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := write(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func boxes(tx *Tx) error {
	for i := range 16 {
		if err := put(fmt.Sprint("box", i), 0)(tx); err != nil {
			return err
		}
	}
	return nil
}

func benchStore(b *testing.B, p place, writers int) {
	o := Options{Record: func([]any) error { return nil }}
	db := p.open(b, o)
	must(b, db.Write(b.Context(), boxes))
	before := db.Stats()
	spread(b, writers, func(i int64) error {
		return db.Write(b.Context(), func(tx *Tx) error {
			var seq int64
			box := fmt.Sprint("box", i%16)
			if err := tx.Row([]any{&seq}, benchNumber, box); err != nil {
				return err
			}
			tx.Note(i)
			tx.Signal(box)
			_, err := tx.Exec(benchInsert, benchBody, box, seq)
			return err
		})
	})
	after := db.Stats()
	b.ReportMetric(float64(after.Jobs-before.Jobs)/float64(after.Commits-before.Commits), "jobs/commit")
}

func benchBare(b *testing.B, writers int) {
	p := place{dir: b.TempDir()}
	must(b, p.open(b, Options{}).Close())
	path, err := dbPath(p.dir)
	must(b, err)
	db, err := driver.Open("file:" + path + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
		"&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)")
	must(b, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for i := range 16 {
		_, err := db.Exec(`INSERT INTO kv (k, n) VALUES (?1, 0)`, fmt.Sprint("box", i))
		must(b, err)
	}
	number, err1 := db.Prepare(benchNumber)
	insert, err2 := db.Prepare(benchInsert)
	must(b, errors.Join(err1, err2))
	spread(b, writers, func(i int64) error { return bareWrite(db, number, insert, i) })
}

func bareWrite(db *sql.DB, number, insert *sql.Stmt, i int64) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var seq int64
	box := fmt.Sprint("box", i%16)
	if err := tx.Stmt(number).QueryRow(box).Scan(&seq); err != nil {
		return err
	}
	if _, err := tx.Stmt(insert).Exec(benchBody, box, seq); err != nil {
		return err
	}
	return tx.Commit()
}

// BenchmarkRead is a read of one row.
func BenchmarkRead(b *testing.B) {
	for _, p := range []place{{dir: b.TempDir()}, {dsn: doortest.Postgres(b)}} {
		db := p.open(b, Options{})
		must(b, db.Write(b.Context(), boxes))
		b.Run(db.Engine(), func(b *testing.B) {
			spread(b, 4, func(int64) error {
				var n int64
				return db.Read(b.Context(), func(tx *Tx) error { return tx.Row([]any{&n}, `SELECT n FROM kv WHERE k = ?1`, "box1") })
			})
		})
	}
}
