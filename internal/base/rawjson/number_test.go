package rawjson

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestEqualNumbersAreOne(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{`1`, `1.0`, `1e0`, `10E-1`, `0.1e1`, `100e-2`},
		{`0`, `-0`, `0.0`, `-0e9`, `0e-400`},
		{`1000000000000000000000`, `1e21`, `1.000E+21`},
		{`{"b":[1.50,"1.0"],"a":true}`, `{"a":true,"b":[15e-1,"1.0"]}`},
		{`"e1.0\"2.0"`, `"e1.0\u00222.0"`},
		{`9007199254740993`, `9007199254740993.0`, `9007199254740993e0`},
	} {
		for _, s := range same {
			if got, want := Comparable([]byte(s)), Comparable([]byte(same[0])); !bytes.Equal(got, want) {
				t.Errorf("%s gives %s, %s gives %s", s, got, same[0], want)
			}
		}
	}
	different := []string{`9007199254740992`, `9007199254740993`, `1e400`, `1e401`, `0.1`, `0.1000000000000000055`, `1`, `-1`, `"1"`, `"1.0"`, `[1]`, `true`, `false`, `null`}
	seen := map[string]string{}
	for _, s := range different {
		got := string(Comparable([]byte(s)))
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s are one: %s", s, other, got)
		}
		seen[got] = s
	}
}

// FuzzComparable compares with exact arithmetic, and with the canonical form of jsontext
// where a double holds the number.
func FuzzComparable(f *testing.F) {
	for _, s := range []string{"1", "1.0", "-0", "1e21", "1e-7", "123456789012345678901234567890", "0.1", "5e-324", "1.7976931348623157e308", "2.5E+3"} {
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := exactly(a)
		y, okY := exactly(b)
		if !okX || !okY {
			return
		}
		p, q := Comparable([]byte(a)), Comparable([]byte(b))
		if bytes.Equal(p, q) != (x.Cmp(y) == 0) {
			t.Errorf("%s gives %s, %s gives %s", a, p, b, q)
		}
		v := jsontext.Value(a)
		if d, _ := new(big.Rat).SetString(string(p)); d != nil && !bytes.ContainsRune(p, 'E') && v.Canonicalize() == nil && string(v) != string(p) {
			t.Errorf("%s gives %s, RFC 8785 has %s", a, p, v)
		}
	})
}

// exactly is a number of JSON whose exponent is small enough for exact arithmetic.
func exactly(text string) (*big.Rat, bool) {
	var n json.Number
	if len(text) > 40 || text != strings.TrimSpace(text) || strings.HasPrefix(text, `"`) || json.Unmarshal([]byte(text), &n) != nil || n == "" {
		return nil, false
	}
	if d, ok := decimalOf(text); !ok || d.exponent > 500 || d.exponent < -500 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// TestNumbersHaveTheForm: the form is the one of RFC 8785 where a double holds the number, and
// all its digits otherwise. What is no number stays.
func TestNumbersHaveTheForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`1.50`: `1.5`, `9.0`: `9`, `90e-1`: `9`, `-9E1`: `-90`, `0.10`: `0.1`, `1E21`: `1e+21`, `-0`: `0`,
		`9007199254740993`:      `9007199254740993E0`,
		`-9007199254740993.00`:  `-9007199254740993E0`,
		`10e400`:                `1E401`,
		`0.1000000000000000055`: `1000000000000000055E-19`,
		`[9.0,{"a":1e0}]`:       `[9,{"a":1}]`,
		`1e99999999999`:         `1e99999999999`,
		`-`:                     `-`, `1-2`: `1-2`, `1.2.3`: `1.2.3`,
	} {
		if got := Comparable([]byte(in)); string(got) != want {
			t.Errorf("%s gives %s, want %s", in, got, want)
		}
	}
}
