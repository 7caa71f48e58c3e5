package library_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/test/doortest"
)

// bed is a database with a library on a directory. A test stops and starts it as a
// daemon would.
type bed struct {
	t *testing.T
	*library.Library
	dir, state, dsn string
	key             []byte
	o               library.Options
	before          []func(*library.Library) // called before it runs

	db      *store.DB
	stop    func()
	clock   atomic.Int64 // added to the time
	told    atomic.Int64 // how often the library was told the time
	changed atomic.Int64
	mu      sync.Mutex
	notes   []any
	refuse  error // of the record
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, o library.Options, test func(t *testing.T, b *bed), before ...func(*library.Library)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newBed(t, o, "", before...))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newBed(t, o, doortest.Postgres(t), before...))
	})
}

// on runs a test on SQLite.
func on(t *testing.T, o library.Options, before ...func(*library.Library)) *bed {
	t.Helper()
	t.Parallel()
	return newBed(t, o, "", before...)
}

func newBed(t *testing.T, o library.Options, dsn string, before ...func(*library.Library)) *bed {
	t.Helper()
	b := &bed{t: t, dir: filepath.Join(t.TempDir(), "instructions"), state: t.TempDir(), dsn: dsn, key: []byte(strings.Repeat("k", 32)), o: o, before: before}
	must(t, os.Mkdir(b.dir, 0o700))
	b.start()
	t.Cleanup(b.end)
	return b
}

// start opens the library and runs it.
func (b *bed) start() {
	b.t.Helper()
	b.openDB()
	o := b.options()
	lib, err := library.Open(b.t.Context(), o)
	must(b.t, err)
	b.Library = lib
	for _, f := range b.before {
		f(lib)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		lib.Run(ctx)
	}()
	b.stop = func() {
		cancel()
		<-done
	}
	if o.Remote == nil && o.Dir != "" {
		ready(b.t, lib)
	}
}

func ready(t *testing.T, l *library.Library) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must(t, l.Ready(ctx))
}

func (b *bed) openDB() {
	b.t.Helper()
	db, err := store.Open(b.t.Context(), store.Options{Dir: b.state, Postgres: b.dsn, Migrations: library.Migrations(), Record: b.record, Now: b.now})
	must(b.t, err)
	b.db = db
}

func (b *bed) options() library.Options {
	o := b.o
	o.DB, o.Key, o.Changed = b.db, b.key, func() { b.changed.Add(1) }
	o.Now = func() time.Time { b.told.Add(1); return b.now() }
	if o.Dir == "" && o.Remote == nil {
		o.Dir = b.dir
	}
	if o.Installation == "" {
		o.Installation = "here"
	}
	if o.Entered == nil {
		o.Entered = func(*library.Act) any { return aside }
	}
	return o
}

func (b *bed) now() time.Time { return time.Now().Add(time.Duration(b.clock.Load())) }

func (b *bed) record(notes []any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	for _, n := range notes {
		if n != aside {
			b.notes = append(b.notes, n)
		}
	}
	return nil
}

// aside is the record of files in tests that do not look at them.
const aside = "a file"

// written is a recorder for Put.
func written(*library.Act) error { return nil }

// recorded are the notes so far, without aside.
func (b *bed) recorded() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.notes)
}

// moves counts the records of labels that moved.
func (b *bed) moves() (n int) {
	for _, r := range b.recorded() {
		if a, ok := r.(library.Act); ok && len(a.Moves) > 0 {
			n++
		}
	}
	return n
}

// unrecorded makes every record fail, or none.
func (b *bed) unrecorded(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

// end stops the library as a daemon does.
func (b *bed) end() {
	b.t.Helper()
	if b.stop == nil {
		return
	}
	b.stop()
	b.stop = nil
	must(b.t, b.Close(context.Background()))
	must(b.t, b.db.Close())
}

// restart stops the library and opens it again, as another process would.
func (b *bed) restart() {
	b.t.Helper()
	b.end()
	b.start()
}

// text is a document with a name and further header lines.
func text(name, body string, header ...string) string {
	class := "instructions"
	if name == "voice" {
		class = "voice"
	}
	return fmt.Sprintf("---\nname: %s\nclass: %s\n%s---\n%s\n", name, class, strings.Join(append(header, ""), "\n"), body)
}

func audience(project string) string { return fmt.Sprintf("audience: {projects: [%q]}", project) }

// version is the version of a file with this content.
func version(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// file writes a file of the directory without a look at it.
func (b *bed) file(name, content string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600))
}

// write writes a file and looks into the directory.
func (b *bed) write(name, content string) {
	b.t.Helper()
	b.file(name, content)
	b.look()
}

func (b *bed) remove(name string) {
	b.t.Helper()
	must(b.t, os.Remove(filepath.Join(b.dir, name)))
	b.look()
}

func (b *bed) look() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	must(b.t, b.Look(ctx))
}

// bodies are what readers get, as name=body, in order.
func bodies(l *library.Library) (out []string) {
	set, _ := l.Set()
	for _, d := range set.Documents() {
		out = append(out, d.Name+"="+d.Body)
	}
	slices.Sort(out)
	return out
}

// serves fails the test unless readers get this and nothing else.
func (b *bed) serves(want ...string) {
	b.t.Helper()
	slices.Sort(want)
	if got := bodies(b.Library); !slices.Equal(got, want) {
		_, state := b.Set()
		b.t.Fatalf("readers get %q, want %q (%+v)", got, want, state)
	}
}

// is fails the test unless the library is OK, where reason is empty, or is not OK
// for a reason with these words.
func (b *bed) is(reason string) library.State {
	b.t.Helper()
	_, state := b.Set()
	if state.OK != (reason == "") || !strings.Contains(state.Reason, reason) {
		b.t.Fatalf("the state is %+v, want %q", state, reason)
	}
	return state
}

// problem fails the test unless exactly one problem has these words.
func (b *bed) problem(file, words string) document.Problem {
	b.t.Helper()
	_, state := b.Set()
	var found []document.Problem
	for _, p := range state.Problems {
		if p.File == file && strings.Contains(p.Text, words) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		b.t.Fatalf("%d problems of %s say %q: %+v", len(found), file, words, state.Problems)
	}
	return found[0]
}

func (b *bed) noProblems() {
	b.t.Helper()
	if _, state := b.Set(); len(state.Problems) > 0 {
		b.t.Fatalf("problems: %+v", state.Problems)
	}
}

// note makes the record of an act: a copy of the act.
func note(a *library.Act) any {
	c := *a
	c.Moves = slices.Clone(a.Moves)
	return c
}

func (b *bed) promote(name, version, label string) *library.Act {
	b.t.Helper()
	a, err := b.Promote(b.t.Context(), name, version, label, note)
	must(b.t, err)
	return a
}

func (b *bed) rollback(name string) *library.Act {
	b.t.Helper()
	a, err := b.Rollback(b.t.Context(), name, note)
	must(b.t, err)
	return a
}

func (b *bed) revoke(name, version string) *library.Act {
	b.t.Helper()
	a, err := b.Revoke(b.t.Context(), name, version, note)
	must(b.t, err)
	return a
}

// lookup are the bodies for a name and a label or version.
func (b *bed) lookup(name, ref string) (out []string) {
	b.t.Helper()
	docs, err := b.Lookup(name, ref)
	must(b.t, err)
	for _, d := range docs {
		out = append(out, d.Body)
	}
	slices.Sort(out)
	return out
}

// exec runs one statement, which must change a row.
func (b *bed) exec(query string, args ...any) {
	b.t.Helper()
	must(b.t, b.db.Write(context.Background(), func(tx *store.Tx) error {
		n, err := tx.Exec(query, args...)
		if err == nil && n == 0 {
			err = fmt.Errorf("no row was changed by %s", query)
		}
		return err
	}))
}

func (b *bed) count(query string, args ...any) (n int64) {
	b.t.Helper()
	must(b.t, b.db.Read(context.Background(), func(tx *store.Tx) error { return tx.Row([]any{&n}, query, args...) }))
	return n
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	doortest.Until(t, time.Minute, what, ok)
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
