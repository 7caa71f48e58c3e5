package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// lossy is a store behind a proxy, and one on the same database without a proxy.
func lossy(t *testing.T, dsn string, o Options) (*proxy, *DB, *DB) {
	t.Helper()
	proxy, p := newProxy(t, dsn)
	db := p.open(t, o)
	return proxy, db, place{dsn: dsn}.open(t, Options{})
}

func (p *proxy) losing(mode string, lost func()) {
	p.lost = lost
	p.mode.Store(mode)
}

func rowsOf(t *testing.T, db *DB, k string) int64 {
	t.Helper()
	return number(t, db, `SELECT count(*) FROM kv WHERE k = ?1`, k)
}

// Events between a COMMIT whose answer is lost and the question for its outcome do
// not change the answer: it is committed, or uncertain where the server cannot tell.
func TestTheOutcomeOfALostCommitIsFoundDespiteOtherEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost      func(t *testing.T, proxy *proxy, db, admin *DB)
		uncertain bool
	}{
		"nothing": {lost: func(*testing.T, *proxy, *DB, *DB) {}},
		"the store writes on": {lost: func(t *testing.T, proxy *proxy, db, _ *DB) {
			proxy.mode.Store("")
			together(2*connections, func(i int) { must(t, db.Write(t.Context(), put(fmt.Sprint("on", i), 1))) })
		}},
		"another daemon writes, and tidies up": {lost: func(t *testing.T, _ *proxy, _, admin *DB) {
			together(2*connections, func(i int) { must(t, admin.Write(t.Context(), put(fmt.Sprint("other", i), 1))) })
		}},
		"the row is gone": {uncertain: true, lost: func(t *testing.T, _ *proxy, _, admin *DB) {
			must(t, admin.Write(t.Context(), func(tx *Tx) error { _, err := tx.Exec(`DELETE FROM store_commits`); return err }))
		}},
		"the server only reads": {uncertain: true, lost: func(t *testing.T, _ *proxy, _, admin *DB) {
			must(t, admin.Write(t.Context(), func(tx *Tx) error {
				_, err := tx.Exec(`DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET default_transaction_read_only = on'', current_database()); END'`)
				return err
			}))
		}},
		"the server is not there": {uncertain: true, lost: func(_ *testing.T, proxy *proxy, _, _ *DB) { proxy.mode.Store("gone") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			proxy, db, admin := lossy(t, doortest.Postgres(t), r.options())
			db.engine.(*postgres).fateLimit = 3 * time.Second
			if !c.uncertain {
				db.engine.(*postgres).fateLimit = time.Minute
			}
			must(t, db.Write(t.Context(), put("before", 1)))
			proxy.losing("lose answer", func() { c.lost(t, proxy, db, admin) })
			err := db.Write(t.Context(), func(tx *Tx) error { tx.Note("note"); return put("lost", 1)(tx) })
			if c.uncertain != errors.Is(err, ErrUncertain) || !c.uncertain && err != nil || (len(r.undo) > 0) != c.uncertain {
				t.Errorf("undone %v: %v", r.undo, err)
			}
			if rowsOf(t, admin, "lost") != 1 {
				t.Error("the server did not commit: this test looks at nothing")
			}
		})
	}
}

// slowly makes a COMMIT that wrote to kv wait three seconds and then execute what.
func slowly(t *testing.T, db *DB, what string) {
	t.Helper()
	must(t, db.Write(t.Context(), func(tx *Tx) error {
		_, err1 := tx.Exec(`CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); ` + what + ` RETURN NULL; END'`)
		_, err2 := tx.Exec(`CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON kv DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION slowly()`)
		return errors.Join(err1, err2)
	}))
}

// The question for the outcome of a COMMIT that is under way waits for its end,
// but not longer than fateLimit.
func TestACommitThatIsUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then      string
		limit     time.Duration
		uncertain bool
		kept      int64
	}{
		"committed":                   {limit: time.Minute, kept: 1},
		"rolled back":                 {then: `RAISE EXCEPTION ''no'';`, limit: time.Minute},
		"not waited for, committed":   {limit: time.Second, uncertain: true, kept: 1},
		"not waited for, rolled back": {then: `RAISE EXCEPTION ''no'';`, limit: time.Second, uncertain: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, db, admin := lossy(t, doortest.Postgres(t), Options{})
			slowly(t, admin, c.then)
			db.engine.(*postgres).fateLimit = c.limit
			proxy.losing("lose sight", func() {})
			err := db.Write(t.Context(), put("lost", 1))
			proxy.mode.Store("")
			certain := c.kept == 1 && err == nil || c.kept == 0 && errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUncertain)
			if c.uncertain != errors.Is(err, ErrUncertain) || !c.uncertain && !certain {
				t.Errorf("%v", err)
			}
			await(t, "end of the COMMIT", func() bool {
				return !c.uncertain || number(t, admin, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%COMMIT%' AND state = 'active' AND pid <> pg_backend_pid()`) == 0
			})
			if n := rowsOf(t, admin, "lost"); n != c.kept {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// A transaction that was lost before its COMMIT is not taken for another one with
// the same number. A server that was killed may give the number again, to one
// that commits.
func TestAReusedTransactionNumberIsNotTakenForTheLostCommit(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	r := &recorder{}
	p := place{dsn: server.DSN()}
	db, other := p.open(t, r.options()), p.open(t, Options{})
	db.engine.(*postgres).fateLimit = time.Minute
	for try := range 20 {
		var xid int64
		key := fmt.Sprint("lost", try)
		r.hook = func([]any) {
			server.Kill(t)
			server.Start(t)
			for i := range 20 {
				must(t, other.Write(t.Context(), put(fmt.Sprint(try, "-", i), 1)))
			}
		}
		err := db.Write(t.Context(), func(tx *Tx) error {
			tx.Note(key)
			return errors.Join(tx.Row([]any{&xid}, `SELECT txid_current()`), put(key, 1)(tx))
		})
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain) || rowsOf(t, other, key) != 0 {
			t.Fatalf("%d rows: %v", rowsOf(t, other, key), err)
		}
		var fate string
		must(t, other.Read(t.Context(), func(tx *Tx) error { return tx.Row([]any{&fate}, `SELECT coalesce(txid_status(?1), '')`, xid) }))
		if fate == "committed" {
			return
		}
	}
	t.Error("no number was given again: this test looks at nothing")
}

// After a server was killed during a COMMIT, the store learns from it whether the
// COMMIT was done.
func TestTheOutcomeOfACommitIsKnownAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	proxy, db, admin := lossy(t, server.DSN(), Options{})
	db.engine.(*postgres).fateLimit = time.Minute
	for i, mode := range []string{"lose answer", "lose sight", "lose sight", "lose sight", "lose sight"} {
		key := fmt.Sprint("k", i)
		back := make(chan struct{})
		proxy.losing(mode, func() {
			defer close(back)
			time.Sleep(time.Duration(i-1) * 200 * time.Microsecond)
			server.Kill(t)
			proxy.mode.Store("")
			server.Start(t)
		})
		err := db.Write(t.Context(), put(key, 1))
		<-back
		if errors.Is(err, ErrUncertain) || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", key, err)
		}
		if n := rowsOf(t, admin, key); (n == 1) != (err == nil) || mode == "lose answer" && n != 1 {
			t.Errorf("%s: %d rows: %v", key, n, err)
		}
	}
}

// The table store_commits has a row for each connection that writes. The rows of
// connections that are gone are removed after commitKept.
func TestRowsOfConnectionsDoNotPileUp(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	admin := p.open(t, Options{})
	must(t, admin.Write(t.Context(), put("admin", 1)))
	for i := range 3 {
		db := p.open(t, Options{})
		for j := range 10 {
			must(t, db.Write(t.Context(), put(fmt.Sprint(i, j), 1)))
		}
		must(t, db.Close())
	}
	const count = `SELECT count(*) FROM store_commits`
	if n := number(t, admin, count); n != 4 {
		t.Errorf("%d rows for 4 connections", n)
	}
	must(t, admin.Write(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`UPDATE store_commits SET at = at - ?1`, 2*commitKept.Milliseconds())
		return err
	})) // the commit renews its own row
	must(t, p.open(t, Options{}).Write(t.Context(), put("new", 1)))
	if n := number(t, admin, count); n != 2 {
		t.Errorf("%d rows for 2 connections", n)
	}
	// A connection whose row was removed while it was idle gets a new one.
	must(t, admin.Write(t.Context(), func(tx *Tx) error { _, err := tx.Exec(`DELETE FROM store_commits`); return err }))
	must(t, admin.Write(t.Context(), put("again", 1)))
	if n := number(t, admin, count); n != 1 {
		t.Errorf("%d rows after one write", n)
	}
}

// The table store_commits reuses its space without a vacuum: one of 20 rounds of
// 600 writes adds no page. A round may add some while other transactions of the
// server keep old versions of rows. Without reuse each would add five.
func TestMarksStayInTheirPage(t *testing.T) {
	t.Parallel()
	db := place{dsn: doortest.Postgres(t)}.open(t, Options{})
	const pages = `SELECT (pg_relation_size('store_commits') + pg_relation_size('store_commits_pkey')) / 8192`
	for round := 0; ; round++ {
		before := number(t, db, pages)
		for i := range 600 {
			must(t, db.Write(t.Context(), put(fmt.Sprint(round, i), 1)))
		}
		switch after := number(t, db, pages); {
		case round > 0 && after == before:
			return
		case round == 20:
			t.Fatalf("%d pages, and %d in the round before", after, before)
		}
	}
}

// A job that writes no row does not change the mark of its connection.
func TestAJobThatWritesNothingLeavesNoMark(t *testing.T) {
	t.Parallel()
	db := place{dsn: doortest.Postgres(t)}.open(t, Options{})
	must(t, db.Write(t.Context(), put("k", 1)))
	const mark = `SELECT max(number) FROM store_commits`
	before := number(t, db, mark)
	for range 5 {
		must(t, db.Write(t.Context(), func(tx *Tx) error { return tx.Row([]any{new(int64)}, `SELECT count(*) FROM kv`) }))
	}
	if after := number(t, db, mark); after != before {
		t.Errorf("the mark went from %d to %d", before, after)
	}
}
