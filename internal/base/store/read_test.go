package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

func TestReadersSeeNoPartOfATransaction(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), func(tx *Tx) error { return errors.Join(put("a", 500)(tx), put("b", 500)(tx)) }))
		var done atomic.Bool
		move := func(from, to string) func(*Tx) error {
			return func(tx *Tx) error {
				_, err := tx.Exec(`UPDATE kv SET n = n - 1 WHERE k = ?1`, from)
				if err == nil {
					_, err = tx.Exec(`UPDATE kv SET n = n + 1 WHERE k = ?1`, to)
				}
				return err
			}
		}
		together(6, func(i int) {
			if i < 2 {
				defer done.Store(true)
				for range 100 {
					// Both update the rows in the same order, so that they do not deadlock.
					if err := db.Write(t.Context(), move("a", "b")); err != nil {
						t.Error(err)
					}
				}
				return
			}
			for reads := 0; !done.Load() || reads == 0; reads++ {
				var a, b, c int
				err := db.Read(t.Context(), func(tx *Tx) error {
					return errors.Join(
						tx.Row([]any{&a}, `SELECT n FROM kv WHERE k = 'a'`),
						tx.Row([]any{&b}, `SELECT n FROM kv WHERE k = 'b'`),
						tx.Row([]any{&c}, `SELECT n FROM kv WHERE k = 'a'`))
				})
				if err != nil || a+b != 1000 || a != c {
					t.Errorf("a %d and %d, b %d: %v", a, c, b, err)
					return
				}
			}
		})
	})
}

// While fifty writers number messages, a reader sees no gap, and in the end there
// is none.
func TestACounterWithoutGapsUnder50Writers(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), put("box", 0)))
		stop, reader := make(chan struct{}), make(chan error, 1)
		go func() { reader <- watchForGaps(db, stop) }()
		const writers, each = 50, 10
		together(writers, func(i int) {
			for j := range each {
				err := db.Write(t.Context(), func(tx *Tx) error {
					if err := send(tx, "box", fmt.Sprintf("%d.%d", i, j)); err != nil {
						return err
					}
					if (i+j)%7 == 0 {
						return errOdd // its number is given back
					}
					return nil
				})
				if err != nil && err != errOdd {
					t.Error(err)
				}
			}
		})
		close(stop)
		must(t, <-reader)
		n := number(t, db, `SELECT count(*) FROM log`)
		last := number(t, db, `SELECT n FROM kv WHERE k = 'box'`)
		distinct := number(t, db, `SELECT count(DISTINCT seq) FROM log WHERE seq BETWEEN 1 AND ?1`, last)
		if n != last || distinct != last || n < 400 {
			t.Errorf("%d messages with %d numbers up to %d", n, distinct, last)
		}
	})
}

// send numbers and stores a message, as a delivery does.
func send(tx *Tx, box, id string) error {
	var seq int64
	if err := tx.Row([]any{&seq}, `UPDATE kv SET n = n + 1 WHERE k = ?1 RETURNING n`, box); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO log (id, box, seq) VALUES (?1, ?2, ?3)`, id, box, seq)
	return err
}

// watchForGaps reads behind a cursor, as a client does.
func watchForGaps(db *DB, stop chan struct{}) error {
	cursor := int64(0)
	for {
		err := db.Read(context.Background(), func(tx *Tx) error {
			return tx.Each(func(scan func(...any) error) error {
				var seq int64
				if err := scan(&seq); err != nil {
					return err
				}
				if seq != cursor+1 {
					return fmt.Errorf("%d came after %d", seq, cursor)
				}
				cursor = seq
				return nil
			}, `SELECT seq FROM log WHERE box = 'box' AND seq > ?1 ORDER BY seq`, cursor)
		})
		if err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAReadMayNotWrite(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), put("a", 1)))
		jobs := map[string]func(*Tx) error{
			"Exec": put("b", 1),
			"Row": func(tx *Tx) error {
				return tx.Row([]any{new(int)}, `UPDATE kv SET n = 7 RETURNING n`)
			},
			"Each": func(tx *Tx) error {
				return tx.Each(func(func(...any) error) error { return nil }, `DELETE FROM kv RETURNING n`)
			},
		}
		for name, job := range jobs {
			if err := db.Read(t.Context(), job); err == nil {
				t.Errorf("%s wrote", name)
			}
		}
		if number(t, db, `SELECT n FROM kv`) != 1 {
			t.Error("something was changed")
		}
		must(t, db.Write(t.Context(), put("c", 1)))
	})
}

func TestRowsAreWalkedSafely(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			for i := range 200 {
				if err := put(fmt.Sprint(i), int64(i))(tx); err != nil {
					return err
				}
			}
			return nil
		}))
		const all = `SELECT n FROM kv ORDER BY n`
		for range 3 { // the connection stays good
			err := db.Read(t.Context(), func(tx *Tx) error {
				rows := 0
				err := tx.Each(func(scan func(...any) error) error {
					if rows++; rows == 3 {
						return errOdd
					}
					return nil
				}, all)
				if err != errOdd || rows != 3 {
					t.Errorf("after %d rows: %v", rows, err)
				}
				var n int
				return tx.Row([]any{&n}, `SELECT 1`)
			})
			must(t, err)
			_ = db.Read(t.Context(), func(tx *Tx) error {
				return tx.Each(func(func(...any) error) error {
					if _, err := tx.Exec(`DELETE FROM kv`); err != errInRow {
						t.Errorf("a row's function used the transaction: %v", err)
					}
					return errOdd
				}, all)
			})
			with := panics(func() {
				_ = db.Write(t.Context(), func(tx *Tx) error {
					return tx.Each(func(func(...any) error) error { panic(errOdd) }, all)
				})
			})
			if with != errOdd {
				t.Errorf("panicked with %v", with)
			}
		}
		must(t, db.Read(t.Context(), func(tx *Tx) error {
			if err := tx.Row([]any{new(int)}, `SELECT n FROM kv WHERE k = 'none'`); err != ErrNoRow {
				t.Errorf("no row: %v", err)
			}
			return nil
		}))
	})
}

// A read ends with its context, and the store stays usable.
func TestAReadEndsWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		endless := `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 2000000000) SELECT count(*) FROM c`
		together(2*readers, func(int) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begun := time.Now()
			err := db.Read(ctx, func(tx *Tx) error { return tx.Row([]any{new(int)}, endless) })
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) {
				t.Errorf("given up: %v", err)
			}
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("it took %s", d)
			}
		})
		together(2*readers, func(int) { number(t, db, `SELECT count(*) FROM kv`) })
	})
}
