package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/test/doortest"
)

// bed is a database and a state directory with a Keeper, a clock that the test sets,
// and processes that it ends.
type bed struct {
	t *testing.T
	*Keeper
	db    *store.DB
	dir   string
	dsn   string
	clock atomic.Int64 // added to the time of the start
	start time.Time
	log   bytes.Buffer // of the store and the Keeper; read when neither writes

	mu     sync.Mutex
	gone   map[string]bool
	ended  []Session
	notes  []any
	broken error // of the record
}

// onBoth runs a test on SQLite and on PostgreSQL, each on a database of its own.
func onBoth(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newBed(t, ""))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newBed(t, doortest.Postgres(t)))
	})
}

// onSQLite runs a test that does not depend on the engine.
func onSQLite(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Parallel()
	test(t, newBed(t, ""))
}

func newBed(t *testing.T, dsn string) *bed {
	t.Helper()
	b := &bed{t: t, dir: filepath.Join(t.TempDir(), "state"), dsn: dsn, start: time.Now().Truncate(time.Second), gone: make(map[string]bool)}
	db, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(b.dir, "db"), Postgres: dsn, Migrations: Migrations(), Record: b.record})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	b.db = db
	b.Keeper = b.open(b.options())
	return b
}

func (b *bed) options() Options {
	return Options{DB: b.db, Dir: b.dir, Installation: "here", Now: b.now, Gone: b.isGone, Ended: b.hear, Record: over,
		Log: slog.New(slog.NewTextHandler(&b.log, nil))}
}

func (b *bed) open(o Options) *Keeper {
	b.t.Helper()
	k, err := Open(b.t.Context(), o)
	must(b.t, err)
	return k
}

// restart opens the keeper again, as a restarted daemon does.
func (b *bed) restart() {
	b.t.Helper()
	b.Keeper = b.open(b.options())
}

func (b *bed) now() time.Time       { return b.start.Add(time.Duration(b.clock.Load())) }
func (b *bed) pass(d time.Duration) { b.clock.Add(int64(d)) }

func (b *bed) record(notes []any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range notes {
		if b.broken == nil && n != aside {
			b.notes = append(b.notes, n)
		}
	}
	return b.broken
}

func (b *bed) isGone(instance string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone[instance]
}

func (b *bed) kill(instance string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone[instance] = true
}

func (b *bed) hear(s Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = append(b.ended, s)
}

// heard are the ends that Ended was called with, as "id reason".
func (b *bed) heard() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.ended {
		out = append(out, s.ID+" "+s.Reason)
	}
	return out
}

func (b *bed) exec(query string, args ...any) int64 {
	b.t.Helper()
	var n int64
	must(b.t, b.db.Write(context.Background(), func(tx *store.Tx) (err error) {
		n, err = tx.Exec(query, args...)
		return err
	}))
	return n
}

func (b *bed) rows(table string) (n int64) {
	b.t.Helper()
	must(b.t, b.db.Read(context.Background(), func(tx *store.Tx) error { return tx.Row([]any{&n}, `SELECT count(*) FROM `+table) }))
	return n
}

// ask is the request for most sessions here.
func ask() Request {
	return Request{Subject: "uid:1000", Scope: []string{Structural, Behavioural}, Project: "demo", Client: "claude/1.0"}
}

func (b *bed) issue(r Request) (string, *Session) {
	b.t.Helper()
	token, s, err := b.Issue(b.t.Context(), r, said)
	must(b.t, err)
	return token, s
}

// owner is the caller that made the sessions of ask, on the Unix socket.
func owner() Caller {
	return Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/7@1", "boot/5@1", "boot/1@0"}}
}

// good checks that a token is accepted.
func (b *bed) good(token string, c Caller) *Session {
	b.t.Helper()
	s, err := b.Check(token, c)
	must(b.t, err)
	return s
}

// bad checks that a token is refused, and that the error contains only the reason.
func (b *bed) bad(token string, c Caller, reason string) {
	b.t.Helper()
	s, err := b.Check(token, c)
	var invalid *Invalid
	if s != nil || !errors.As(err, &invalid) || invalid.Reason != reason {
		b.t.Fatalf("got %+v, %v; want a refusal: %s", s, err, reason)
	}
	if want := "the session token is refused: " + reason; err.Error() != want {
		b.t.Fatalf("the refusal reads %q", err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// aside is the record of acts in tests that do not look at them.
const aside = "an act"

func said(*Session) any { return aside }
func over(*Session) any { return aside }
