package wire

import (
	"slices"
	"strings"
	"testing"
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
	obj := []byte(call300)
	if n := testing.AllocsPerRun(100, func() { GetPath(obj, "params", "_meta", MetaVersion) }); n != 0 {
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

func TestText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0041\u00e4\u20aC"`: "Aä€",
		`"\ud83d\ude00x"`: "😀x", `"😀"`: "😀", `"\u0000"`: "\x00", `"\\u0041"`: `\u0041`,
	} {
		if got, ok := Text([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %q, %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", `"`, "1", "null", "{}", `["a"]`} {
		if got, ok := Text([]byte(raw)); ok {
			t.Errorf("%s is no string, got %q", raw, got)
		}
	}
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
	pieces := []string{"{", "}", "[", "]", ",", ":", `"`, `\`, `\u`, `\ud800`, "1", "t", " ", `"a"`, "\x00", "\xff", ""}
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				for _, d := range pieces {
					handle([]byte(a + b + c + d))
				}
			}
		}
	}
	handle([]byte(strings.Repeat("[", 100_000)))
	handle([]byte(strings.Repeat(`{"a":`, 100_000)))
}

// handle calls everything that reads validated bytes.
func handle(raw []byte) {
	Get(raw, "a")
	Text(raw)
	for range Members(raw) {
	}
	for range Elements(raw) {
	}
	HoldsQuestions(raw)
	ID(raw).Int()
}
