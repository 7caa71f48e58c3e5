package rawjson

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/trust/wire"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		` { "b" : 1.0 , "a" : [ true , { } , "\u0041\/" ] } `: `{"a":[true,{},"A/"],"b":1.0}`,
		`{"é":1,"z":2,"\u0061":3,"a\n":4,"":5}`:               `{"":5,"a":3,"a\n":4,"z":2,"é":1}`,
		`[]`:                                                  `[]`, `{}`: `{}`, `null`: `null`, ` 1e5 `: `1e5`, `"\u00e4\u0001"`: `"ä\u0001"`, `[{"b":{"d":1,"c":2}}]`: `[{"b":{"c":2,"d":1}}]`,
		`[",",""]`: `[",",""]`,
	} {
		if got := Canonical([]byte(raw)); string(got) != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	one, other := Canonical([]byte(`{"a":1,"b":{"c":"x","d":[1, 2]}}`)), Canonical([]byte("{\"b\":{\n\"d\":[1,2],\"\\u0063\":\"x\"},\"a\":1}"))
	if string(one) != string(other) {
		t.Errorf("the same value twice: %s and %s", one, other)
	}
}

// FuzzCanonical: the canonical form of valid JSON has the same value and is its
// own canonical form. Other input does not panic.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1.0,"a":[true,{"d":1e3,"c":"\u0041"}]}`, `[]`, `"\ud83d\ude00"`, `-0`, ` {"é" : {"z":null , "\u0061":[ ]}} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, equal := Canonical(raw), Comparable(raw)
		if wire.ValidateValue(raw) != nil {
			return // it must not panic
		}
		if err := wire.ValidateValue(c); err != nil {
			t.Fatalf("%q: canonical %q: %v", raw, c, err)
		}
		if again := Canonical(c); !bytes.Equal(again, c) {
			t.Fatalf("%q: canonical %q, then %q", raw, c, again)
		}
		if diff := cmp.Diff(decoded(t, raw), decoded(t, c)); diff != "" {
			t.Fatalf("%q: canonical %q is another value:\n%s", raw, c, diff)
		}
		if again := Comparable(c); !bytes.Equal(again, equal) {
			t.Fatalf("%q: comparable %q, of its canonical form %q", raw, equal, again)
		}
	})
}

func decoded(t *testing.T, raw []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return v
}
