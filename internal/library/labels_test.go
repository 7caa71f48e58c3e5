package library_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/doortest"
	"github.com/doorward/doorward/internal/library"
	"github.com/doorward/doorward/internal/store"
)

func TestRollbackGoesBackSeveralTimesAndLastsOverARestart(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		var all []string
		for i := range 4 {
			all = append(all, text("a", fmt.Sprint("number ", i)))
			b.write("a.md", all[i])
		}
		a := b.rollback("a")
		equal(t, "moves", a.Moves, library.Move{From: version(all[3]), To: version(all[2])})
		b.rollback("a")
		b.serves("a=number 1")
		b.restart()
		b.serves("a=number 1")
		b.rollback("a")
		b.serves("a=number 0")
		_, err := b.Rollback(t.Context(), "a", note)
		refused(t, err, library.ErrNoEarlier)
		b.serves("a=number 0")
		// What the operator chose is what one can come back to.
		b.promote("a", version(all[2])[:12], "")
		b.rollback("a")
		b.serves("a=number 0")
		b.write("a.md", text("a", "number 4"))
		b.serves("a=number 4")
		b.rollback("a")
		b.serves("a=number 0")
	})
}

// A file that is written back to an earlier content was changed, and is
// production like any change.
func TestAFileThatIsChangedBackIsProduction(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", text("a", "first"))
	b.write("a.md", text("a", "second"))
	b.write("a.md", text("a", "first"))
	b.serves("a=first")
	b.rollback("a")
	b.serves("a=second")
}

func TestRollbackUndoesOneActOnly(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		b.file("x.md", text("a", "x1", audience("x")))
		b.write("y.md", text("a", "y1", audience("y")))
		b.write("x.md", text("a", "x2", audience("x")))
		b.write("y.md", text("a", "y2", audience("y")))
		b.serves("a=x2", "a=y2")
		b.rollback("a")
		b.serves("a=x2", "a=y1")
		b.rollback("a")
		b.serves("a=x1", "a=y1")
		_, err := b.Rollback(t.Context(), "a", note)
		refused(t, err, library.ErrNoEarlier)
		// What one act moved goes back together.
		if a := b.promote("a", "", ""); len(a.Moves) != 2 {
			t.Errorf("%+v", a)
		}
		b.serves("a=x2", "a=y2")
		if a := b.rollback("a"); len(a.Moves) != 2 {
			t.Errorf("%+v", a)
		}
		b.serves("a=x1", "a=y1")
	})
}

func TestARevokedVersionIsNeverGivenOutAgain(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two, three := text("a", "first"), text("a", "second"), text("a", "third")
		b.write("a.md", one)
		b.write("b.md", text("b", "other"))
		b.write("a.md", two)
		b.promote("a", version(two)[:12], "staging")
		before := b.changed.Load()
		a := b.revoke("a", version(two)[:12])
		if b.changed.Load() != before+1 {
			t.Errorf("told %d times", b.changed.Load()-before)
		}
		equal(t, "moves", a.Moves, library.Move{From: version(two)})
		if a.Version != version(two) {
			t.Errorf("%+v", a)
		}
		nothing := func() {
			t.Helper()
			b.serves("b=other")
			b.is("")
			for _, ref := range []string{library.Production, "staging", version(two)[:12], version(one)} {
				_, err := b.Lookup("a", ref)
				refused(t, err, library.ErrUnknown)
			}
			_, err := b.Promote(t.Context(), "a", version(two), "", note)
			refused(t, err, library.ErrRevoked)
			_, err = b.Revoke(t.Context(), "a", version(two), note)
			refused(t, err, library.ErrRevoked)
		}
		nothing()
		_, err := b.Promote(t.Context(), "a", "", "", note)
		refused(t, err, library.ErrRevoked)
		b.remove("a.md")
		b.write("a.md", two)
		nothing()
		b.restart()
		nothing()
		// Nothing comes by itself.
		b.write("a.md", three)
		b.serves("b=other")
		b.write("a.md", two)
		nothing()
		b.promote("a", version(one), "")
		b.serves("a=first", "b=other")
		b.write("a.md", three)
		b.serves("a=third", "b=other")
		b.write("a.md", two)
		b.serves("a=third", "b=other")
	})
}

func TestAVersionThatWasNotProductionIsRevokedAlone(t *testing.T) {
	b := on(t, library.Options{})
	one, two, three := text("a", "first"), text("a", "second"), text("a", "third")
	b.write("a.md", one)
	b.write("a.md", two)
	b.write("a.md", three)
	if a := b.revoke("a", version(two)); len(a.Moves) != 0 {
		t.Errorf("%+v", a)
	}
	b.serves("a=third")
	b.rollback("a")
	b.serves("a=first")
}

func TestRollbackGivesBackWhatWasProductionBeforeTheRevokedVersion(t *testing.T) {
	b := on(t, library.Options{})
	one, two := text("a", "first"), text("a", "second")
	b.write("a.md", one)
	b.write("a.md", two)
	b.revoke("a", version(two))
	b.serves()
	b.rollback("a")
	b.serves("a=first")
	b.restart()
	b.serves("a=first")
}

func TestAWithdrawnNameStaysAwayUntilAPromote(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.write("b.md", text("b", "other"))
		b.promote("a", "", "staging")
		a := b.revoke("a", "")
		equal(t, "moves", a.Moves, library.Move{From: version(one)})
		nothing := func() {
			t.Helper()
			b.serves("b=other")
			for _, ref := range []string{library.Production, "staging", version(one)} {
				_, err := b.Lookup("a", ref)
				refused(t, err, library.ErrUnknown)
			}
		}
		nothing()
		b.write("a.md", two)
		nothing()
		b.restart()
		nothing()
		b.write("c.md", text("a", "for few", audience("x")))
		nothing()
		_, err := b.Rollback(t.Context(), "a", note)
		refused(t, err, library.ErrWithdrawn)
		b.promote("a", "", "staging")
		nothing()
		// A promote of one audience does not bring the others back.
		b.promote("a", version(one), "")
		b.serves("a=first", "b=other")
		b.promote("a", "", "")
		b.serves("a=second", "a=for few", "b=other")
	})
}

func TestUnderReviewAChangeWaits(t *testing.T) {
	onBoth(t, library.Options{Review: true, Moved: note}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.serves()
		b.is("")
		waits := func(want ...string) {
			t.Helper()
			all, err := b.List(t.Context())
			must(t, err)
			var got []string
			for _, v := range all {
				if v.Waiting {
					got = append(got, v.Version)
				}
			}
			equal(t, "waiting", got, want...)
		}
		waits(version(one))
		_, err := b.Lookup("a", version(one))
		refused(t, err, library.ErrUnknown)
		b.promote("a", "", "")
		b.serves("a=first")
		waits()
		b.write("a.md", two)
		b.restart()
		b.serves("a=first")
		waits(version(two))
		b.promote("a", version(two)[:4], "staging")
		b.serves("a=first")
		waits()
		equal(t, "staging", b.lookup("a", "staging"), "second")
		if n := len(b.recorded()); n != 2 {
			t.Errorf("%d records, want those of the operator's acts", n)
		}
	})
}

func TestALabelOrAVersionFindsWhatItStandsFor(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.file("few.md", text("a", "for few", audience("x")))
		b.write("a.md", two)
		b.promote("a", version(one)[:8], "stable")
		for range 2 {
			equal(t, "stable", b.lookup("a", "stable"), "first")
			equal(t, "production", b.lookup("a", library.Production), "for few", "second")
			equal(t, "a version", b.lookup("a", version(two)), "second")
			equal(t, "a prefix", b.lookup("a", version(one)[:12]), "first")
			for _, ref := range []string{"", "none", version(one)[:11], strings.ToUpper(version(one)), version("x"), version(one) + "0"} {
				_, err := b.Lookup("a", ref)
				refused(t, err, library.ErrUnknown)
			}
			_, err := b.Lookup("b", version(one))
			refused(t, err, library.ErrUnknown)
			b.restart()
		}
		b.promote("a", version(two), "stable")
		equal(t, "an old version, from the database", b.lookup("a", version(one)), "first")
	})
}

func TestActsAreRefusedWithTheirReason(t *testing.T) {
	b := on(t, library.Options{})
	one := text("a", "first")
	b.write("a.md", one)
	b.write("gone.md", text("gone", "x"))
	b.remove("gone.md")
	ctx := t.Context()
	for _, c := range []struct {
		what string
		act  func() (*library.Act, error)
		want error
	}{
		{"promote of nothing", func() (*library.Act, error) { return b.Promote(ctx, "none", "", "", note) }, library.ErrUnknown},
		{"promote of no version", func() (*library.Act, error) { return b.Promote(ctx, "a", "0000", "", note) }, library.ErrUnknown},
		{"promote of too little", func() (*library.Act, error) { return b.Promote(ctx, "a", version(one)[:3], "", note) }, library.ErrUnknown},
		{"promote of a pattern", func() (*library.Act, error) { return b.Promote(ctx, "a", "%%%%", "", note) }, library.ErrUnknown},
		{"promote without a file", func() (*library.Act, error) { return b.Promote(ctx, "gone", "", "", note) }, library.ErrAbsent},
		{"a label like a version", func() (*library.Act, error) { return b.Promote(ctx, "a", "", "beef", note) }, library.ErrLabel},
		{"a label with a space", func() (*library.Act, error) { return b.Promote(ctx, "a", "", "a b", note) }, library.ErrLabel},
		{"rollback of nothing", func() (*library.Act, error) { return b.Rollback(ctx, "none", note) }, library.ErrUnknown},
		{"rollback without a file", func() (*library.Act, error) { return b.Rollback(ctx, "gone", note) }, library.ErrAbsent},
		{"rollback of the first", func() (*library.Act, error) { return b.Rollback(ctx, "a", note) }, library.ErrNoEarlier},
		{"revoke of nothing", func() (*library.Act, error) { return b.Revoke(ctx, "none", "", note) }, library.ErrUnknown},
		{"revoke of no version", func() (*library.Act, error) { return b.Revoke(ctx, "a", "0000", note) }, library.ErrUnknown},
	} {
		if a, err := c.act(); !errors.Is(err, c.want) || a != nil {
			t.Errorf("%s: %v, %v", c.what, a, err)
		}
	}
	if _, err := b.Versions(ctx, "none"); !errors.Is(err, library.ErrUnknown) {
		t.Errorf("versions of nothing: %v", err)
	}
	if n := len(b.recorded()); n != 0 {
		t.Errorf("%d records", n)
	}
	b.serves("a=first")
}

func TestTwoVersionsOfOnePrefixAreAmbiguous(t *testing.T) {
	b := on(t, library.Options{Review: true})
	seen := make(map[string]string)
	for i := 0; ; i++ {
		content := text("a", fmt.Sprint("number ", i))
		short := version(content)[:4]
		if other, ok := seen[short]; ok {
			b.write("a.md", other)
			b.write("a.md", content)
			_, err := b.Promote(t.Context(), "a", short, "", note)
			refused(t, err, library.ErrAmbiguous)
			_, err = b.Content(t.Context(), "a", short)
			refused(t, err, library.ErrAmbiguous)
			return
		}
		seen[short] = content
	}
}

func TestContentIsTheFileAsItWas(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two := text("a", "first", "description: a \"thing\""), "\ufeff"+text("a", "second")
		b.write("a.md", one)
		b.write("a.md", two)
		b.promote("a", version(one), "stable")
		for ref, want := range map[string]string{"": two, library.Production: two, "stable": one, version(one)[:4]: one} {
			if got, err := b.Content(t.Context(), "a", ref); err != nil || got != want {
				t.Errorf("%q: %q, %v", ref, got, err)
			}
		}
		_, err := b.Content(t.Context(), "a", "none")
		refused(t, err, library.ErrUnknown)
		b.write("b.md", text("a", "for few", audience("x")))
		_, err = b.Content(t.Context(), "a", "")
		refused(t, err, library.ErrAmbiguous)
	})
}

// An act that cannot be recorded is not done, by an operator or by a file.
func TestWithoutARecordNothingMoves(t *testing.T) {
	onBoth(t, library.Options{Moved: note}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.unrecorded(errors.New("the disk is full"))
		_, err := b.Revoke(t.Context(), "a", "", note)
		refused(t, err, store.ErrRecord)
		b.serves("a=first")
		b.write("a.md", two)
		b.serves("a=first")
		b.problem(b.dir, "cannot be written down")
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

// Every act leaves the same in this process as another one finds.
func TestWhatIsServedIsWhatTheDatabaseSays(t *testing.T) {
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
				prefix = "" // few versions go for good
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

// Many operators and a directory that changes: what is served in the end is
// what another process finds, and a revoked version is never seen after its
// revocation.
func TestActsAtOnceLeaveOneTruth(t *testing.T) {
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

func TestOldVersionsGoAndNotThoseThatAreNeeded(t *testing.T) {
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
	// Beside them that in production, the revoked one, and what the directory
	// held when the last one came.
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

// Two daemons on one PostgreSQL: an operator's act at one holds at the other.
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

// expect reports an error that is none of these.
func expect(t *testing.T, err error, but ...error) {
	t.Helper()
	if err != nil && !slices.ContainsFunc(but, func(b error) bool { return errors.Is(err, b) }) {
		t.Error(err)
	}
}

// A label that is moved to and fro leaves a history with an end.
func TestTheHistoryHasAnEnd(t *testing.T) {
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
