package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// Two writers that take two rows in opposite order deadlock; the server ends
// one of them, which runs again. Each writer is recorded and signalled once.
func TestADeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	db := place{dsn: doortest.Postgres(t)}.open(t, r.options())
	must(t, db.Write(t.Context(), func(tx *Tx) error { return errors.Join(put("a", 0)(tx), put("b", 0)(tx)) }))
	var e ear
	defer db.Listen(e.hear)()
	var meet sync.WaitGroup
	meet.Add(2)
	var runs atomic.Int32
	together(2, func(i int) {
		order := [][]string{{"a", "b"}, {"b", "a"}}[i]
		first := true
		err := db.Write(t.Context(), func(tx *Tx) error {
			run := runs.Add(1)
			tx.Note(fmt.Sprint("writer ", i))
			tx.Signal(fmt.Sprint("run", run))
			for _, k := range order {
				if _, err := tx.Exec(`UPDATE kv SET n = n + 1 WHERE k = ?1`, k); err != nil {
					return errOdd // what the job makes of it does not matter
				}
				if first {
					first = false
					meet.Done()
					meet.Wait()
				}
			}
			return nil
		})
		must(t, err)
	})
	// Which of the two is ended is the server's choice, as is whether they meet
	// once more.
	if n := runs.Load(); n < 3 || db.Stats().Retries != int64(n-2) || len(r.notes) != 2 || r.notes[0] == r.notes[1] {
		t.Errorf("%d runs, %d retries, notes %v", n, db.Stats().Retries, r.notes)
	}
	if n := number(t, db, `SELECT sum(n) FROM kv`); n != 4 {
		t.Errorf("the sum is %d", n)
	}
	must(t, db.Write(t.Context(), signals("end")))
	e.wait(t, "end", limit)
	heard := 0
	for run := range runs.Load() {
		heard += e.times(fmt.Sprint("run", run+1))
	}
	if heard != 2 {
		t.Errorf("%d runs were signalled", heard)
	}
}

const refuse = `DO 'BEGIN RAISE EXCEPTION USING ERRCODE = ''40001''; END'`

func TestRetriesHaveAnEnd(t *testing.T) {
	t.Parallel()
	db := place{dsn: doortest.Postgres(t)}.open(t, Options{})
	for failures, want := range map[int]string{retries: "", retries + 1: "6 attempts"} {
		runs := 0
		ctx, cancel := context.WithCancel(t.Context())
		err := db.Write(ctx, func(tx *Tx) error {
			cancel() // it has begun and is carried to its end
			if runs++; runs > failures {
				return put(fmt.Sprint(failures), 1)(tx)
			}
			_, err := tx.Exec(refuse)
			return err
		})
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want)) {
			t.Errorf("after %d failures and %d runs: %v", failures, runs, err)
		}
	}
	if got := keys(t, db); got != "5," {
		t.Errorf("there are %s", got)
	}
}

// A COMMIT that PostgreSQL refuses is reported to the record as undone.
func TestACommitThatIsRefusedIsTakenBack(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	p := place{dsn: doortest.Postgres(t)}
	o := r.options()
	o.Migrations = append(append([]Migration{}, schema...), Migration{Name: "child-1", SQL: []string{
		`CREATE TABLE child (k TEXT NOT NULL REFERENCES kv (k) DEFERRABLE INITIALLY DEFERRED) STRICT`}})
	db := p.open(t, o)
	err := db.Write(t.Context(), func(tx *Tx) error {
		tx.Note("child")
		_, err := tx.Exec(`INSERT INTO child (k) VALUES ('none')`)
		return err
	})
	if err == nil || errors.Is(err, ErrUnavailable) || fmt.Sprint(r.undo) != "[child]" {
		t.Errorf("undone %v: %v", r.undo, err)
	}
}

// A connection that ends in the middle of a job fails that job alone; the next
// ones get other connections.
func TestALostConnectionCostsItsJobAlone(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	p := place{dsn: doortest.Postgres(t)}
	db, admin := p.open(t, r.options()), p.open(t, Options{})
	const kill = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = ?1`
	err := db.Write(t.Context(), func(tx *Tx) error {
		if err := put("a", 1)(tx); err != nil {
			return err
		}
		number(t, admin, kill, "idle in transaction")
		return put("b", 1)(tx)
	})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("the job: %v", err)
	}
	together(connections, func(i int) { must(t, db.Write(t.Context(), put(fmt.Sprint("w", i), 1))) })
	number(t, admin, kill, "idle")
	for i := range connections {
		must(t, db.Write(t.Context(), put(fmt.Sprint("x", i), 1)))
	}
	// Lost between the record and the COMMIT: taken back, and certain.
	r.hook = func([]any) { number(t, admin, kill, "idle in transaction") }
	err = db.Write(t.Context(), func(tx *Tx) error { tx.Note("lost"); return put("lost", 1)(tx) })
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain) || fmt.Sprint(r.undo) != "[lost]" {
		t.Errorf("lost before COMMIT, undone %v: %v", r.undo, err)
	}
	if n := number(t, db, `SELECT count(*) FROM kv`); n != 2*connections {
		t.Errorf("%d rows", n)
	}
}

// When the connection ends during a COMMIT, the store asks the server for the
// outcome. It is uncertain where the server cannot be reached.
func TestTheFateOfALostCommitIsLearnt(t *testing.T) {
	t.Parallel()
	proxy, p := newProxy(t, doortest.Postgres(t))
	r := &recorder{}
	db := p.open(t, r.options())
	db.engine.(*postgres).fateLimit = time.Second
	for _, c := range []struct {
		mode                         string
		unavailable, uncertain, kept bool
	}{
		{mode: "", kept: true},
		{mode: "lose answer", kept: true},
		{mode: "lose request", unavailable: true},
		{mode: "lose all", unavailable: true, uncertain: true},
	} {
		r.undo = nil
		proxy.mode.Store(c.mode)
		err := db.Write(t.Context(), func(tx *Tx) error { tx.Note(c.mode); return put("k"+c.mode, 1)(tx) })
		proxy.mode.Store("")
		if errors.Is(err, ErrUnavailable) != c.unavailable || errors.Is(err, ErrUncertain) != c.uncertain || (err == nil) != c.kept {
			t.Errorf("%q: %v", c.mode, err)
		}
		if n := number(t, db, `SELECT count(*) FROM kv WHERE k = ?1`, "k"+c.mode); (n == 1) != c.kept || (len(r.undo) == 0) != c.kept {
			t.Errorf("%q: %d rows, undone %v", c.mode, n, r.undo)
		}
	}
}

// When all pooled connections hang, as after a firewall forgot them, the next job
// waits for one limit, not for one limit per connection.
func TestConnectionsThatHangAreGivenUpTogether(t *testing.T) {
	t.Parallel()
	proxy, p := newProxy(t, doortest.Postgres(t))
	db := p.open(t, Options{})
	db.engine.(*postgres).beginLimit = time.Second
	var meet sync.WaitGroup
	meet.Add(connections)
	together(connections, func(i int) {
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			meet.Done()
			meet.Wait() // each has a connection of its own
			return put(fmt.Sprint(i), 1)(tx)
		}))
	})
	proxy.age.Add(1)
	begun := time.Now()
	must(t, db.Write(t.Context(), put("after", 1)))
	if took := time.Since(begun); took > connections*time.Second/2 {
		t.Errorf("it took %s", took)
	}
}

func TestAServerThatDiesAndComesBack(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	p := place{dsn: server.DSN()}
	a, b := p.open(t, Options{}), p.open(t, Options{})
	must(t, a.Write(t.Context(), put("before", 1)))
	var e ear
	defer b.Listen(e.hear)()
	server.Kill(t)
	for _, err := range []error{a.Write(t.Context(), put("x", 1)), a.Read(t.Context(), func(*Tx) error { return nil })} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("without a server: %v", err)
		}
	}
	if _, err := Open(t.Context(), p.options(Options{})); !errors.Is(err, ErrUnavailable) {
		t.Errorf("opened without a server: %v", err)
	}
	server.Start(t)
	must(t, a.Write(t.Context(), put("after", 1)))
	if got := keys(t, b); got != "after,before," {
		t.Errorf("there are %s", got)
	}
	// The listener comes back by itself.
	await(t, "signal after the restart", func() bool {
		must(t, a.Write(t.Context(), signals("again")))
		return e.times("again") > 0
	})
	if e.times("") == 0 {
		t.Error("the empty signal was not heard")
	}
}

func TestASettingThatLosesCommitsIsOverridden(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t) + " options='-c synchronous_commit=off -c standard_conforming_strings=off'"}
	db := p.open(t, Options{})
	var sync, text string
	must(t, db.Write(t.Context(), func(tx *Tx) error {
		return tx.Row([]any{&sync, &text}, `SELECT current_setting('synchronous_commit'), 'a\n'`)
	}))
	if sync != "on" || text != `a\n` {
		t.Errorf("synchronous_commit %s, text %q", sync, text)
	}
}

func TestAReadOnlyServerIsUnavailable(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	must(t, p.open(t, Options{}).Close())
	db := p.open(t, Options{})
	var before, after int
	const pid = `SELECT pg_backend_pid()`
	err := db.Write(t.Context(), func(tx *Tx) error {
		must(t, tx.Row([]any{&before}, pid))
		if _, err := tx.Exec(`SET TRANSACTION READ ONLY`); err != nil {
			t.Error(err)
		}
		return put("k", 1)(tx)
	})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("read only: %v", err)
	}
	// The next one connects anew and may find the server that writes.
	must(t, db.Write(t.Context(), func(tx *Tx) error { return errors.Join(tx.Row([]any{&after}, pid), put("k", 1)(tx)) }))
	if before == after {
		t.Error("the connection was kept")
	}
}

// Errors and the log do not contain the password, for malformed connection
// strings and for failures of an open store.
func TestThePasswordIsNeverTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	o := Options{Log: slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))}
	var told []string
	tell := func(err error) {
		if err == nil {
			t.Error("no error")
			return
		}
		told = append(told, fmt.Sprintf("%v %+v %#v", err, err, err))
		for e := err; e != nil; e = errors.Unwrap(e) {
			told = append(told, fmt.Sprintf("%+v", e))
		}
	}
	proxy, p := newProxy(t, doortest.Postgres(t))
	for _, dsn := range []string{
		"postgres://u:hunter2canary@127.0.0.1:1/db",
		"postgres://u:hunter2canary%zz@127.0.0.1:1/db",
		"postgres://u:hunter2 canary@[::1/db",
		"postgres://u:hunter2canary@127.0.0.1:99999/db",
		"postgres://127.0.0.1:1/db?password=hunter2canary&sslmode=odd",
		"host=127.0.0.1 port=1 password=hunter2canary user=u dbname=d",
		"host=127.0.0.1 port=1 password='hunter2canary",
		"host=127.0.0.1 port=1 password=hunter2canary sslrootcert=/nowhere sslmode=verify-full",
		"host=127.0.0.1 port=1 password=hunter2canary connect_timeout=odd",
		"password=hunter2canary nonsense",
		p.dsn + " dbname=nosuchdatabase",
	} {
		_, err := Open(t.Context(), place{dsn: dsn}.options(o))
		tell(err)
	}
	db := p.open(t, o)
	proxy.mode.Store("gone")
	tell(db.Write(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	}))
	tell(db.Write(t.Context(), put("k", 1)))
	proxy.mode.Store("")
	mu.Lock()
	told = append(told, log.String())
	mu.Unlock()
	for _, text := range told {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "canary") || strings.Contains(text, "%zz") {
			t.Errorf("told: %s", text)
		}
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// TestAnotherHostRequiresTLS: a connection string that permits plain
// text to another host is refused. Client libraries fall back to it silently.
func TestAnotherHostRequiresTLS(t *testing.T) {
	t.Parallel()
	for dsn, clear := range map[string]bool{
		"postgres://u:p@db.example.com/d":                               true,
		"postgres://u:p@db.example.com/d?sslmode=disable":               true,
		"postgres://u:p@db.example.com/d?sslmode=prefer":                true,
		"postgres://u:p@db.example.com/d?sslmode=allow":                 true,
		"host=192.0.2.7 user=u dbname=d":                                true,
		"host=localhost,db.example.com user=u dbname=d sslmode=disable": true,
		"host=0.0.0.0 user=u dbname=d sslmode=disable":                  true,
		"postgres://u:p@db.example.com/d?sslmode=require":               false,
		"postgres://u:p@db.example.com/d?sslmode=verify-full":           false,
		"postgres://u:p@localhost/d":                                    false,
		"postgres://u:p@127.0.0.1/d":                                    false,
		"postgres://u:p@[::1]/d":                                        false,
		"host=/run/postgresql user=u dbname=d":                          false,
	} {
		_, err := parseDSN(dsn, "")
		if errors.Is(err, errClear) != clear || err != nil && !clear {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}
