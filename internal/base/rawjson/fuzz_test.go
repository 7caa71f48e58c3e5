package rawjson

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/wire"
)

func FuzzSplice(f *testing.F) {
	for _, obj := range []string{`{}`, `{ }`, `{"a":1}`, ` { "a" : 1 , "b":{"a":2} } `, `{"\u0061":1,"b":[{}]}`, `{"b":1,"a":2,"c":"x\"}"}`} {
		for _, key := range []string{"a", "b", "", "ü\"\n"} {
			f.Add([]byte(obj), key, []byte(`{"x":[1, 2]}`))
		}
	}
	f.Fuzz(func(t *testing.T, obj []byte, key string, value []byte) {
		Set(obj, Edit{key, value})
		if wire.ValidateValue(obj) != nil || bytes.TrimSpace(obj)[0] != '{' || wire.ValidateValue(value) != nil || !utf8.ValidString(key) {
			return
		}
		value = bytes.Trim(value, " \n\r\t")
		before := bytes.Clone(obj)
		old := Get(obj, key)

		set := Set(obj, Edit{key, value})
		if tooDeep(wire.ValidateValue(set)) {
			return
		}
		spliced(t, obj, set, key, value)
		if old != nil { // nothing but the value's bytes has changed
			at := bytes.Index(obj, old)
			for ; !bytes.Equal(slices.Concat(obj[:at], value, obj[at+len(old):]), set); at++ {
				next := bytes.Index(obj[at+1:], old)
				if next < 0 {
					t.Fatalf("%q with %q changed became %q", obj, key, set)
				}
				at += next
			}
		}
		spliced(t, obj, Set(obj, Edit{key, nil}), key, nil)
		if back := Set(Set(obj, Edit{key, value}), Edit{key, nil}); old == nil && !bytes.Equal(back, obj) {
			t.Fatalf("%q with %q set and removed became %q", obj, key, back)
		}
		in := SetIn(obj, key, Edit{"k", value})
		if !tooDeep(wire.ValidateValue(in)) {
			spliced(t, obj, in, key, Get(in, key))
			if got := GetPath(in, key, "k"); !bytes.Equal(got, value) {
				t.Fatalf("%q: inside %q is %q, want %q", in, key, got, value)
			}
		}
		if !bytes.Equal(obj, before) {
			t.Fatalf("the original changed from %q to %q", before, obj)
		}
	})
}

// tooDeep reports that an edit went beyond the depth that wire reads.
func tooDeep(err error) bool {
	var e *wire.SyntaxError
	return errors.As(err, &e) && e.Reason == "nested too deeply"
}

// spliced checks that after is before with key set to value, or removed when
// that is nil, and all other members as they were, in the same order.
func spliced(t *testing.T, before, after []byte, key string, value []byte) {
	t.Helper()
	if err := wire.ValidateValue(after); err != nil {
		t.Fatalf("%q became %q: %v", before, after, err)
	}
	if got := Get(after, key); !bytes.Equal(got, value) || (got == nil) != (value == nil) {
		t.Fatalf("%q: %q is %q, want %q", after, key, got, value)
	}
	others := func(obj []byte) (members []string) {
		for k, v := range Members(obj) {
			if k != key {
				members = append(members, k, string(v))
			}
		}
		return members
	}
	if one, other := others(before), others(after); !slices.Equal(one, other) {
		t.Fatalf("with %q changed the other members %q became %q", key, one, other)
	}
}

// Edits of input that was never validated do not panic.
func TestEditsSurviveGarbage(t *testing.T) {
	t.Parallel()
	garbage(editAll)
}

// garbage calls f with all texts of four pieces of JSON, and with deep ones.
func garbage(f func([]byte)) {
	pieces := []string{"{", "}", "[", "]", ",", ":", `"`, `\`, `\u`, `\ud800`, "1", "t", " ", `"a"`, "\x00", "\xff", ""}
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				for _, d := range pieces {
					f([]byte(a + b + c + d))
				}
			}
		}
	}
	f([]byte(strings.Repeat("[", 100_000)))
	f([]byte(strings.Repeat(`{"a":`, 100_000)))
}

func editAll(raw []byte) {
	Set(raw, Edit{"a", []byte("1")}, Edit{"b", nil})
	SetIn(raw, "a", Edit{"b", []byte("1")})
	MapStrings(raw, func(String) ([]byte, bool) { return nil, true })
}

// call300 is an ordinary tools/call of about 300 bytes.
const call300 = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"search_files","arguments":` +
	`{"path":"/home/user/projects/example","pattern":"func main","recursive":true,"limit":50,"exclude":["vendor",".git"]},` +
	`"_meta":{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

func BenchmarkSetInMeta(b *testing.B) {
	m, err := wire.Parse([]byte(call300), wire.FromClient)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		SetIn(m.Params, "_meta", Edit{"progressToken", []byte("99")})
	}
}
