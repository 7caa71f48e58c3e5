package library_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/test/doortest"
)

// An act that cannot be recorded is not done, by an operator or by a file.
func TestWithoutARecordNothingMoves(t *testing.T) {
	onBoth(t, library.Options{Entered: note}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.unrecorded(errors.New("the disk is full"))
		_, err := b.Revoke(t.Context(), "a", "", note)
		refused(t, err, store.ErrRecord)
		b.serves("a=first")
		b.write("a.md", two)
		b.serves("a=first")
		b.problem(b.dir, "cannot be stored")
		b.is("")
		b.unrecorded(nil)
		b.look()
		b.serves("a=second")
		b.noProblems()
		if n := len(b.recorded()); n != 2 {
			t.Errorf("%d records", n)
		}
	})
}

// After each random act the served documents are those that a restarted library
// serves.
func TestServedDocumentsAreTheSameAfterARestart(t *testing.T) {
	b := on(t, library.Options{})
	r := rand.New(rand.NewPCG(1, 2))
	var contents []string
	for i := range 12 {
		var header []string
		if i%3 == 0 {
			header = append(header, audience("x"))
		}
		contents = append(contents, text([]string{"a", "b"}[i%2], fmt.Sprint("number ", i), header...))
	}
	ctx := t.Context()
	done := 0
	for step := range 40 {
		name := []string{"a", "b"}[r.IntN(2)]
		prefix := ""
		if r.IntN(2) == 0 {
			prefix = version(contents[r.IntN(len(contents))])
		}
		var err error
		switch r.IntN(7) {
		case 0, 1, 2:
			b.write([]string{"1.md", "2.md", "3.md"}[r.IntN(3)], contents[r.IntN(len(contents))])
		case 3, 4:
			_, err = b.Promote(ctx, name, prefix, "", note)
		case 5:
			_, err = b.Rollback(ctx, name, note)
		case 6:
			if prefix != "" && step%3 != 0 {
				prefix = "" // revoke few single versions, which is final
			}
			_, err = b.Revoke(ctx, name, prefix, note)
		}
		if err == nil {
			done++
		}
		was := bodies(b.Library)
		b.restart()
		if got := bodies(b.Library); !slices.Equal(got, was) {
			t.Fatalf("step %d: %q, after a restart %q", step, was, got)
		}
	}
	if done < 12 {
		t.Errorf("%d acts were done: the test tests little", done)
	}
}

// Concurrent acts on a changing directory leave the same documents in memory and in
// the database. A revoked version is not served after its revocation.
func TestConcurrentActsLeaveMemoryAndDatabaseEqual(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		bad := text("a", "bad")
		b.write("a.md", bad)
		for i := range 4 {
			b.write("a.md", text("a", fmt.Sprint("number ", i)))
		}
		ctx := t.Context()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 10 {
					if i%2 == 0 {
						_, err := b.Rollback(ctx, "a", note)
						expect(t, err, library.ErrNoEarlier)
					} else {
						_, err := b.Promote(ctx, "a", version(text("a", fmt.Sprint("number ", i))), "", note)
						expect(t, err)
					}
				}
			})
		}
		wg.Go(func() {
			b.file("a.md", text("a", "last"))
			expect(t, b.Look(ctx))
		})
		wg.Go(func() {
			_, err := b.Revoke(ctx, "a", version(bad), note)
			expect(t, err)
			for range 200 {
				for _, body := range bodies(b.Library) {
					if body == "a=bad" {
						t.Error("the revoked version was served")
					}
				}
			}
		})
		wg.Wait()
		b.look()
		was := bodies(b.Library)
		b.restart()
		if got := bodies(b.Library); !slices.Equal(got, was) || len(got) != 1 {
			t.Errorf("%q, after a restart %q", was, got)
		}
	})
}

func TestOldVersionsArePrunedAndNeededOnesKept(t *testing.T) {
	b := on(t, library.Options{Review: true})
	keep := text("a", "the one in production")
	gone := text("a", "the revoked one")
	b.write("a.md", keep)
	b.promote("a", "", "")
	b.write("a.md", gone)
	b.revoke("a", version(gone))
	b.write("a.md", text("a", "the last"))
	for i := range library.VersionsKept + 10 {
		b.exec(`INSERT INTO instruct_versions (installation, name, version, variant, number, bytes, seen_at, labelled_at, revoked_at, content)
			VALUES ('here', 'a', ?1, '', ?2, 1, 0, 0, 0, ?3)`, version(fmt.Sprint(i)), 4+i, []byte("x"))
	}
	b.write("a.md", text("a", "the very last"))
	// Kept besides are the one in production, the revoked one, and the one that the
	// directory held before the last.
	if n := b.count(`SELECT count(*) FROM instruct_versions`); n != library.VersionsKept+3 {
		t.Errorf("%d versions are kept", n)
	}
	b.serves("a=the one in production")
	_, err := b.Promote(t.Context(), "a", version(gone), "", note)
	refused(t, err, library.ErrRevoked)
}

func TestRowsOfAnotherInstallationAreNotLookedAt(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		b.write("a.md", text("a", "first"))
		b.write("a.md", text("a", "second"))
		b.rollback("a")
		b.end()
		b.o.Installation = "there"
		b.start()
		b.serves("a=second")
		_, err := b.Rollback(t.Context(), "a", note)
		refused(t, err, library.ErrNoEarlier)
		b.revoke("a", "")
		b.end()
		b.o.Installation = "here"
		b.start()
		b.serves("a=first")
	})
}

// With two daemons on one PostgreSQL, an operator's act at one holds at the other.
func TestAnActAtAnotherDaemonHoldsHereToo(t *testing.T) {
	t.Parallel()
	one := newBed(t, library.Options{}, doortest.Postgres(t))
	one.write("a.md", text("a", "first"))
	two := newBed(t, library.Options{}, one.dsn)
	two.write("a.md", text("a", "first"))
	two.serves("a=first")
	one.revoke("a", "")
	await(t, "it is withdrawn there", func() bool { return len(bodies(two.Library)) == 0 })
	two.promote("a", "", "")
	await(t, "it is back here", func() bool { return len(bodies(one.Library)) == 1 })
}

func refused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// expect fails the test for an error that is none of these.
func expect(t *testing.T, err error, but ...error) {
	t.Helper()
	if err != nil && !slices.ContainsFunc(but, func(b error) bool { return errors.Is(err, b) }) {
		t.Error(err)
	}
}

// The history of a label keeps a bounded number of moves.
func TestTheHistoryOfALabelIsBounded(t *testing.T) {
	b := on(t, library.Options{})
	both := []string{text("a", "first"), text("a", "second")}
	b.write("a.md", both[0])
	b.write("a.md", both[1])
	for i := range 120 {
		b.promote("a", version(both[i%2]), "")
	}
	if n := b.count(`SELECT count(*) FROM instruct_productions`); n != 101 {
		t.Errorf("%d rows are kept", n)
	}
	for range 100 {
		b.rollback("a")
	}
	_, err := b.Rollback(t.Context(), "a", note)
	refused(t, err, library.ErrNoEarlier)
	b.serves("a=second")
}
