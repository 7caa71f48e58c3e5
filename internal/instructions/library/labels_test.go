package library_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
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
		// A rollback goes back to the version that was in force before the promote.
		b.promote("a", version(all[2])[:12], "")
		b.rollback("a")
		b.serves("a=number 0")
		b.write("a.md", text("a", "number 4"))
		b.serves("a=number 4")
		b.rollback("a")
		b.serves("a=number 0")
	})
}

// A file that is written back to an earlier content is production, like any change.
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
		// The labels that one act moved go back together.
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
		// After a revocation no file is production by itself until a promote.
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
	onBoth(t, library.Options{Review: true, Entered: note}, func(t *testing.T, b *bed) {
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
		if n := b.moves(); n != 2 {
			t.Errorf("%d records of moves, want those of the operator's acts", n)
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

func TestALabelledVersionIsFoundWithoutTheDatabase(t *testing.T) {
	b := on(t, library.Options{})
	one := text("a", "first")
	b.write("a.md", one)
	must(t, b.db.Write(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`ALTER TABLE instruct_versions RENAME TO away`)
		return err
	}))
	equal(t, "the version", b.lookup("a", version(one)), "first")
	if _, err := b.Lookup("a", version(one)[:20]); err == nil {
		t.Error("a prefix is resolved without the database, which may have another version with it")
	}
}
