package store

import (
	"database/sql"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Queries with parameters of every type give the same values on both engines.
func TestValuesAreTheSameOnBothEngines(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		type state string
		for _, c := range []struct {
			query string
			arg   any
			want  any
		}{
			{`SELECT ?1`, int64(math.MaxInt64), int64(math.MaxInt64)},
			{`SELECT ?1`, math.MinInt64, int64(math.MinInt64)},
			{`SELECT ?1`, uint8(200), int64(200)},
			{`SELECT ?1`, true, int64(1)},
			{`SELECT ?1 < 2`, 1, int64(1)},
			{`SELECT EXISTS (SELECT 1 WHERE ?1 = 2)`, 1, int64(0)},
			{`SELECT CASE WHEN ?1 = 1 THEN 'yes' ELSE 'no' END`, 1, "yes"},
			{`SELECT ?1 / 2`, 7, int64(3)},
			{`SELECT sum(n) FROM (SELECT ?1 AS n UNION ALL SELECT 2) AS x`, 40, int64(42)},
			{`SELECT count(*) FROM kv WHERE n = ?1`, 1, int64(0)},
			{`SELECT ?1`, 0.1, 0.1},
			{`SELECT ?1`, "", ""},
			{`SELECT ?1`, state("held"), "held"},
			{`SELECT ?1 || ''`, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"},
			{`SELECT ?1 || ''`, "12", "12"},
			{`SELECT ?1 || '?1' || '$1'`, "ü\x01\x7f'\"\\%s", "ü\x01\x7f'\"\\%s?1$1"},
			{`SELECT ?1`, []byte{0, 1, 255}, []byte{0, 1, 255}},
			{`SELECT ?1`, []byte{}, []byte{}},
			{`SELECT ?1`, json.RawMessage(`{}`), []byte(`{}`)},
			{`SELECT COALESCE(?1, 'nothing')`, nil, "nothing"},
			{`SELECT COALESCE(?1, 'nothing')`, (*string)(nil), "nothing"},
			{`SELECT b FROM (SELECT ?1 AS a, NULL AS b) AS x`, 1, nil},
		} {
			var got any
			err := db.Read(t.Context(), func(tx *Tx) error { return tx.Row([]any{&got}, c.query, c.arg) })
			if err != nil || !cmp.Equal(got, c.want) {
				t.Errorf("%s of %#v gave %#v, want %#v: %v", c.query, c.arg, got, c.want, err)
			}
		}
	})
}

func TestColumnsKeepWhatTheyAreGiven(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		type row struct {
			n    int64
			b    []byte
			r    *float64
			t    *string
			text sql.NullString
		}
		real, text := 1.5, "2026-01-02T03:04:05Z"
		for name, in := range map[string]row{
			"full":  {math.MaxInt64, []byte{0, 255}, &real, &text, sql.NullString{String: text, Valid: true}},
			"empty": {0, []byte{}, new(float64), new(string), sql.NullString{Valid: true}},
			"null":  {n: math.MinInt64},
		} {
			must(t, db.Write(t.Context(), func(tx *Tx) error {
				_, err := tx.Exec(`INSERT INTO kv (k, n, b, r, t) VALUES (?1, ?2, ?3, ?4, ?5)`, name, in.n, in.b, in.r, in.t)
				return err
			}))
			var out row
			must(t, db.Read(t.Context(), func(tx *Tx) error {
				return tx.Row([]any{&out.n, &out.b, &out.r, &out.t, &out.text}, `SELECT n, b, r, t, t FROM kv WHERE k = ?1`, name)
			}))
			if !cmp.Equal(in, out, cmp.AllowUnexported(row{})) {
				t.Errorf("%s: %s", name, cmp.Diff(in, out, cmp.AllowUnexported(row{})))
			}
		}
	})
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		read := func(dest any, query string, args ...any) error {
			return db.Read(t.Context(), func(tx *Tx) error { return tx.Row([]any{dest}, query, args...) })
		}
		for what, err := range map[string]error{
			"a large number into a small one": read(new(int8), `SELECT 300`),
			"a negative one into an unsigned": read(new(uint), `SELECT -1`),
			"two into a truth value":          read(new(bool), `SELECT 2`),
			"text into a number":              read(new(int), `SELECT '1'`),
			"a number into text":              read(new(string), `SELECT 1`),
			"NULL into text":                  read(new(string), `SELECT NULL WHERE 1 = 1`),
			"a half into a whole number":      read(new(int), `SELECT 0.5`),
			"a value into a copy":             read(7, `SELECT 1`),
			"two columns into one place":      read(new(int), `SELECT 1, 2`),
			"an argument too few":             read(new(int), `SELECT ?1 + ?2`, 1),
			"an argument too many":            read(new(int), `SELECT ?1`, 1, 2),
			"a placeholder without a number":  read(new(int), `SELECT ?`, 1),
			"a zero byte in text":             read(new(any), `SELECT ?1`, "a\x00b"),
			"text that is not UTF-8":          read(new(any), `SELECT ?1`, "a\xffb"),
			"a time":                          read(new(any), `SELECT ?1`, time.Now()),
			"a struct":                        read(new(any), `SELECT ?1`, struct{}{}),
			"half a literal":                  read(new(any), `SELECT 'a`),
		} {
			if err == nil || strings.Contains(err.Error(), "unavailable") {
				t.Errorf("%s: %v", what, err)
			}
		}
		var n uint16
		var yes bool
		var f float32
		var raw json.RawMessage
		var text string
		if err := read(&raw, `SELECT '{}'`); err != nil || string(raw) != "{}" {
			t.Errorf("%s, %v", raw, err)
		}
		if err := read(&text, `SELECT ?1`, []byte("abc")); err != nil || text != "abc" {
			t.Errorf("%s, %v", text, err)
		}
		if err := read(&n, `SELECT 65535`); err != nil || n != 65535 {
			t.Errorf("%d, %v", n, err)
		}
		if err := read(&yes, `SELECT 2 > 1`); err != nil || !yes {
			t.Errorf("%v, %v", yes, err)
		}
		if err := read(&f, `SELECT 2`); err != nil || f != 2 {
			t.Errorf("%v, %v", f, err)
		}
	})
}

func TestTextIsOrderedByItsBytes(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		for _, k := range []string{"a", "B", "_", "-", "Z", "ä", "a-b", "a_b", "ab", "0"} {
			must(t, db.Write(t.Context(), put(k, 1)))
		}
		if got := keys(t, db); got != "-,0,B,Z,_,a,a-b,a_b,ab,ä," {
			t.Errorf("the order is %s", got)
		}
	})
}
