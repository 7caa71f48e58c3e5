package rawjson

import (
	"bytes"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/wire"
)

func TestMapStringsTellsKeysFromValues(t *testing.T) {
	t.Parallel()
	const raw = ` {"a" : "x", "b\u0020c":["y", {"d"` + "\n\t" + `:"z"}], "e":1,"f":{},"g":"" , "h":[[ "k:" ]]} `
	var got []string
	out := MapStrings([]byte(raw), func(s String) ([]byte, bool) {
		if s.IsKey {
			got = append(got, string(s.Text)+":")
		} else {
			got = append(got, string(s.Key)+"="+string(s.Text))
		}
		return nil, false
	})
	if want := "a: a=x b c: =y d: d=z e: f: g: g= h: =k:"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if string(out) != raw {
		t.Errorf("unchanged became %s", out)
	}
}

func TestMapStringsLeavesEveryOtherByte(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		` {"x" : 1.0,"a":"x" ,"b":["x","\u0078"],"c":"\/y"} `: ` {"NEW\n" : 1.0,"a":"NEW\n" ,"b":["NEW\n","NEW\n"],"c":"\/y"} `,
		`"x"`: `"NEW\n"`, `["x"]`: `["NEW\n"]`, `1`: `1`, `"`: `"`, ``: ``,
	} {
		got := MapStrings([]byte(in), func(s String) ([]byte, bool) { return []byte("NEW\n"), string(s.Text) == "x" })
		if string(got) != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// FuzzMapStrings: replacing every string by itself keeps the value, and replacing
// every string value by nothing leaves valid JSON. Other input does not panic.
func FuzzMapStrings(f *testing.F) {
	f.Add([]byte(`{"a":"x","b":["\ud83d\ude00",{"c":"\""}],"d":1e3}`))
	f.Add([]byte(`["\\","\\\"",{"":""}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		count := 0
		same := MapStrings(raw, func(s String) ([]byte, bool) { count++; return s.Text, true })
		if wire.ValidateValue(raw) != nil {
			return // it must not panic
		}
		if !bytes.Equal(Canonical(same), Canonical(raw)) {
			t.Fatalf("%s became %s", raw, same)
		}
		values := MapStrings(raw, func(s String) ([]byte, bool) { return nil, !s.IsKey })
		if err := wire.ValidateValue(values); err != nil {
			t.Fatalf("%s became %s: %v", raw, values, err)
		}
	})
}
