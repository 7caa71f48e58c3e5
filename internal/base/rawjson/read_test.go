package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

func TestGet(t *testing.T) {
	t.Parallel()
	const obj = ` { "a" : 1 , "b":"x\"}{,:\\", "c":{"a":2,"d":[{"a":3},"]"]} ,"e\u0066":true,"\u0068i":"h","\u0041bc":0,"g":null,"":[ ],"ä":-1.5e+3 } `
	cases := map[string]string{
		"a": `1`, "b": `"x\"}{,:\\"`, "c": `{"a":2,"d":[{"a":3},"]"]}`, "ef": `true`, "g": `null`, "": `[ ]`, "ä": `-1.5e+3`,
		"hi": `"h"`, "Abc": `0`,
		"d": "", "A": "", `e\u0066`: "", `\u0041bc`: "", "aa": "", "x": "",
	}
	for key, want := range cases {
		got := Get([]byte(obj), key)
		if string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	for _, none := range []string{"", " ", "[]", `["a",1]`, `"a"`, "1", "null", "{}", "{ }"} {
		if got := Get([]byte(none), "a"); got != nil {
			t.Errorf("in %q: %q", none, got)
		}
	}
	if got := GetPath([]byte(obj), "c", "a"); string(got) != "2" {
		t.Errorf("path: %q", got)
	}
	if got := GetPath([]byte(obj), "a", "a"); got != nil {
		t.Errorf("path through a number: %q", got)
	}
	if got := GetPath([]byte(obj)); string(got) != obj {
		t.Errorf("empty path: %q", got)
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	obj := []byte(`{"jsonrpc":"2.0","id":17,"params":{"name":"x","_meta":{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if n := testing.AllocsPerRun(100, func() { GetPath(obj, "params", "_meta", wire.MetaVersion) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An append to a value that Get returned does not overwrite the bytes after it.
func TestGetKeepsCapacity(t *testing.T) {
	t.Parallel()
	obj := []byte(`{"a":1,"b":2}`)
	_ = append(Get(obj, "a"), "999"...)
	if string(obj) != `{"a":1,"b":2}` {
		t.Errorf("overwritten: %s", obj)
	}
}

func TestGetString(t *testing.T) {
	t.Parallel()
	if s, ok := GetString([]byte(`{"a":"\u0062","n":1}`), "a"); !ok || s != "b" {
		t.Errorf("GetString: %q, %v", s, ok)
	}
	if _, ok := GetString([]byte(`{"a":"b","n":1}`), "n"); ok {
		t.Error("GetString took a number")
	}
}

func TestMembersAndElements(t *testing.T) {
	t.Parallel()
	var got []string
	for k, v := range Members([]byte(`{"a":1, "b\u0062" : {"c":[2]} ,"d":""}`)) {
		got = append(got, k+"="+string(v))
	}
	if want := []string{"a=1", `bb={"c":[2]}`, `d=""`}; !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
	got = nil
	for v := range Elements([]byte(` [ 1 ,"a,]" ,[ ],{"x":[]}, null ] `)) {
		got = append(got, string(v))
	}
	if want := []string{"1", `"a,]"`, "[ ]", `{"x":[]}`, "null"}; !slices.Equal(got, want) {
		t.Errorf("elements %q, want %q", got, want)
	}
	for range Members([]byte(`[1,2]`)) {
		t.Error("an array has members")
	}
	for range Elements([]byte(`{"a":1}`)) {
		t.Error("an object has elements")
	}
	for v := range Elements([]byte(`[1,2,3]`)) {
		if string(v) != "1" {
			t.Error("went on behind a break")
		}
		break
	}
}

// Reading bytes that were never validated does not panic.
func TestRawSurvivesGarbage(t *testing.T) {
	t.Parallel()
	garbage(handle)
}

// handle calls everything that reads validated bytes.
func handle(raw []byte) {
	Get(raw, "a")
	for range Members(raw) {
	}
	for range Elements(raw) {
	}
}

// FuzzGet: in an object that wire accepts, Get, Members and Fields find the members that
// encoding/json finds.
func FuzzGet(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b\u0062":{"a":[2]}}`, ` { "x" : "}" , "\\":"\"" } `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, obj []byte) {
		var want map[string]json.RawMessage
		if wire.ValidateValue(obj) != nil || json.Unmarshal(obj, &want) != nil {
			return
		}
		found := 0
		for key, value := range Members(obj) {
			found++
			if other, ok := want[key]; !ok || !bytes.Equal(other, value) || !bytes.Equal(Get(obj, key), value) {
				t.Fatalf("%q: member %q is %q, Get %q, encoding/json %q", obj, key, value, Get(obj, key), other)
			}
		}
		if found != len(want) {
			t.Fatalf("%q: %d members, encoding/json finds %d", obj, found, len(want))
		}
	})
}

// TestReadingTakesLinearTime: a text that is sixteen times as long costs about sixteen
// times as much.
func TestReadingTakesLinearTime(t *testing.T) {
	for name, text := range map[string]func(n int) string{
		"backslashes":   func(n int) string { return `{"x":"` + strings.Repeat(`\\`, 10*n) + `"}` },
		"quotes":        func(n int) string { return `{"x":"` + strings.Repeat(`\"`, 10*n) + `"}` },
		"nested arrays": func(n int) string { return `{"x":[` + strings.Repeat("[[[[]]]],", n) + "0]}" },
		"members":       func(n int) string { return `{` + strings.Repeat(`"\u0061":1,`, n) + `"b":1}` },
	} {
		cost := func(text []byte, times int) time.Duration {
			best := time.Hour
			for range 5 {
				start := time.Now()
				for range times {
					handle(text)
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		small, large := []byte(text(2_000)), []byte(text(32_000))
		many, one := cost(small, 16), cost(large, 1)
		for range 10 { // on a busy machine one of them may have been disturbed each time
			if one <= 8*many {
				break
			}
			many, one = cost(small, 16), cost(large, 1)
		}
		if one > 8*many {
			t.Errorf("%s: 16 times %d bytes took %v, %d bytes %v", name, len(small), many, len(large), one)
		}
	}
}

func BenchmarkGetName(b *testing.B) {
	params := []byte(`{"_meta":{"progressToken":17},"arguments":{"query":"x","limit":10},"name":"search_files"}`)
	b.ReportAllocs()
	for b.Loop() {
		if Get(params, "name") == nil {
			b.Fatal("no name")
		}
	}
}
