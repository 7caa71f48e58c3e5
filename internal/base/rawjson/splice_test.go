package rawjson

import (
	"fmt"
	"testing"
)

func TestSet(t *testing.T) {
	t.Parallel()
	set := func(kv ...string) (edits []Edit) {
		for i := 0; i < len(kv); i += 2 {
			edits = append(edits, Edit{kv[i], []byte(kv[i+1])})
		}
		return edits
	}
	remove := func(keys ...string) (edits []Edit) {
		for _, k := range keys {
			edits = append(edits, Edit{k, nil})
		}
		return edits
	}
	cases := []struct {
		name, obj string
		edits     []Edit
		want      string
	}{
		{"nothing to do", `{"a": 1}`, nil, `{"a": 1}`},
		{"nil is empty", ``, set("a", "1"), `{"a":1}`},
		{"nil without edits", ``, nil, `{}`},
		{"change", `{"a": 1 , "b":2}`, set("a", `"x"`), `{"a": "x" , "b":2}`},
		{"change, white space stays", "{\n  \"a\" : 1,\n  \"b\" : 2\n}", set("b", "[]"), "{\n  \"a\" : 1,\n  \"b\" : []\n}"},
		{"change an escaped key", `{"\u0061":1}`, set("a", "2"), `{"\u0061":2}`},
		{"append", `{"a":1 }`, set("b", "2"), `{"a":1,"b":2 }`},
		{"append two in order", `{}`, set("z", "1", "a", "2"), `{"z":1,"a":2}`},
		{"append into white space", `{ }`, set("a", "1"), `{"a":1 }`},
		{"append a key that needs quoting", `{}`, set("a\"\n", "1"), `{"a\"\n":1}`},
		{"remove the only one", `{ "a":1 }`, remove("a"), `{ }`},
		{"remove the first", `{ "a":1, "b":2,"c":3}`, remove("a"), `{ "b":2,"c":3}`},
		{"remove the middle", `{ "a":1, "b":2,"c":3}`, remove("b"), `{ "a":1,"c":3}`},
		{"remove the last", `{ "a":1, "b":2,"c":3 }`, remove("c"), `{ "a":1, "b":2 }`},
		{"remove all", `{"a":1, "b":2}`, remove("b", "a"), `{}`},
		{"remove what is not there", `{"a": 1}`, remove("b"), `{"a": 1}`},
		{"remove all, append", `{"a":1,"b":2}`, append(remove("a", "b"), set("c", "3")...), `{"c":3}`},
		{"remove the first, change the next", `{"a":1 , "b":2}`, append(remove("a"), set("b", "3")...), `{"b":3}`},
		{"the later edit holds", `{"a":1}`, set("a", "2", "a", "3", "b", "4", "b", "5"), `{"a":3,"b":5}`},
		{"set, then remove", `{"a":1}`, append(set("a", "2", "b", "1"), remove("a", "b")...), `{}`},
		{"remove, then set", `{"a":1}`, append(remove("a"), set("a", "2")...), `{"a":2}`},
		{"inner members of the same name stay", `{"x":{"a":1},"a":[{"a":2}]}`, set("a", "0"), `{"x":{"a":1},"a":0}`},
		{"an array is left alone", `[1]`, set("a", "1"), `[1]`},
		{"an array of objects is left alone", `[{"a":1}]`, set("a", "2"), `[{"a":1}]`},
		{"a string with a brace is left alone", ` "{"`, set("a", "1"), ` "{"`},
		{"null is left alone", `null`, set("a", "1"), `null`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := c.obj
			obj := []byte(c.obj)
			if got := Set(obj, c.edits...); string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if string(obj) != before {
				t.Errorf("the original changed: %s", obj)
			}
		})
	}
}

func TestSetManyEdits(t *testing.T) {
	t.Parallel()
	var edits []Edit
	want := ""
	for i := range 3 * maxEdits {
		edits = append(edits, Edit{fmt.Sprintf("k%d", i), []byte("1")})
		want += fmt.Sprintf(`,"k%d":1`, i)
	}
	if got := Set(nil, edits...); string(got) != "{"+want[1:]+"}" {
		t.Errorf("got %s", got)
	}
}

func TestSetIn(t *testing.T) {
	t.Parallel()
	one := []Edit{{"progressToken", []byte("9")}}
	none := []Edit{{"progressToken", nil}}
	cases := []struct {
		name, obj string
		edits     []Edit
		want      string
	}{
		{"inside", `{"a":1,"_meta": {"x":2, "progressToken":"p"} }`, one, `{"a":1,"_meta": {"x":2, "progressToken":9} }`},
		{"missing, made", `{"a":1}`, one, `{"a":1,"_meta":{"progressToken":9}}`},
		{"missing, not made for a removal", `{"a":1}`, none, `{"a":1}`},
		{"there and emptied, kept", `{"_meta":{"progressToken":1}}`, none, `{"_meta":{}}`},
		{"there and empty, kept", `{"_meta":{ }}`, none, `{"_meta":{ }}`},
		{"nothing at all", ``, one, `{"_meta":{"progressToken":9}}`},
		{"nothing at all to remove from", ``, none, `{}`},
		{"no object, replaced", `{"_meta":null}`, one, `{"_meta":{"progressToken":9}}`},
		{"no object, nothing to remove", `{"_meta":null}`, none, `{"_meta":null}`},
		{"escaped key", `{"\u005fmeta":{}}`, one, `{"\u005fmeta":{"progressToken":9}}`},
		{"an array is left alone", `[]`, one, `[]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := SetIn([]byte(c.obj), "_meta", c.edits...); string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
