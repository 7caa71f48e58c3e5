package store

import (
	"strings"
	"testing"
)

func TestPlaceholdersAreFoundWhereTheyAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query, want string
		args        int
	}{
		{`SELECT ?1`, `SELECT $1`, 1},
		{`?2 ?1 ?12`, `$2 $1 $12`, 12},
		{`a=?1AND`, `a=$1AND`, 1},
		{`'?1' ?1 "?2" -- ?3`, `'?1' $1 "?2" -- ?3`, 1},
		{"-- it's ?1\n?1 /* ?2 ' */ ?3", "-- it's ?1\n$1 /* ?2 ' */ $3", 3},
		{`'it''s ?1' || ?1`, `'it''s ?1' || $1`, 1},
		{`'--' || ?1 || '/*'`, `'--' || $1 || '/*'`, 1},
		{`"a""?1" - -?1 / 2`, `"a""?1" - -$1 / 2`, 1},
		{`'\' || ?1`, `'\' || $1`, 1},
		{``, ``, 0},
	} {
		got, err := parse(c.query, "$")
		if err != nil || got.text != c.want || got.args != c.args {
			t.Errorf("%q became %q with %d: %v", c.query, got.text, got.args, err)
		}
	}
	for _, bad := range []string{`?`, `? 1`, `?0`, `?x`, `?1001`, `?99999999999999999999`, `'`, `"a`, `/* `, `/* /* */ */`, `'''`} {
		if got, err := parse(bad, "$"); err == nil {
			t.Errorf("%q became %q", bad, got.text)
		}
	}
}

func TestDDLIsTranslated(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		`CREATE TABLE a (x BLOB, y INTEGER NOT NULL) STRICT`:               `CREATE TABLE a (x BYTEA, y BIGINT NOT NULL) `,
		`create table a (x blob, y int, r real) strict`:                    `create table a (x BYTEA, y BIGINT, r DOUBLE PRECISION) `,
		`CREATE TABLE a (blob_key TEXT DEFAULT 'BLOB STRICT') -- STRICT`:   `CREATE TABLE a (blob_key TEXT COLLATE "C" DEFAULT 'BLOB STRICT') -- STRICT`,
		`CREATE TABLE "STRICT" ("BLOB" BLOB CHECK (CAST(a AS TEXT) > ''))`: `CREATE TABLE "STRICT" ("BLOB" BYTEA CHECK (CAST(a AS TEXT) > ''))`,
	} {
		if got, err := postgresDDL(query); err != nil || got != want {
			t.Errorf("%s\nbecame %s\nwant   %s (%v)", query, got, want, err)
		}
	}
}

// FuzzPieces: the pieces of a query together are the query, and a piece of code has
// no quote and no comment. A parsed query parses to itself.
func FuzzPieces(f *testing.F) {
	for _, s := range []string{`SELECT ?1, '?2' -- x`, `/* */ "a""b" 'c''d'`, `- - / *`, `'--'/*'*/?1`, "--\n?1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		var all, code strings.Builder
		err := pieces(query, func(piece string, isCode bool) error {
			all.WriteString(piece)
			if isCode {
				code.WriteString(piece)
				if strings.ContainsAny(piece, `'"`) || strings.Contains(piece, "--") || strings.Contains(piece, "/*") {
					t.Errorf("%q is code of %q", piece, query)
				}
			}
			return nil
		})
		if err == nil && all.String() != query {
			t.Errorf("%q became %q", query, all.String())
		}
		if st, err := parse(query, "?"); err == nil {
			if again, err := parse(st.text, "?"); err != nil || again != st {
				t.Errorf("%q is not stable: %q, %v", st.text, again.text, err)
			}
		}
	})
}
