package rawjson

import (
	"bytes"
	"testing"
)

func TestAppendComma(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`[`: `[`, `{`: `{`, `[1`: `[1,`, `{"a":1`: `{"a":1,`} {
		if got := AppendComma([]byte(in)); string(got) != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestIsTrue(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{`true`: true, `false`: false, `"true"`: false, `1`: false, ``: false} {
		if IsTrue([]byte(raw)) != want {
			t.Errorf("%q is true: %v", raw, !want)
		}
	}
}

func TestIsText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw, text string
		want      bool
	}{
		{`"a"`, "a", true},
		{`"\u0061"`, "a", true},
		{`"a"`, "b", false},
		{`""`, "", true},
		{`1`, "", false},
		{``, "", false},
		{`null`, "", false},
	} {
		if IsText([]byte(c.raw), c.text) != c.want {
			t.Errorf("%q is the text %q: %v", c.raw, c.text, !c.want)
		}
	}
}

// TestSame: equal bytes elsewhere, and another length of the same bytes, are a change.
func TestSame(t *testing.T) {
	t.Parallel()
	raw := []byte(`[1,2]`)
	for name, c := range map[string]struct {
		out, raw []byte
		want     bool
	}{
		"itself":             {raw, raw, true},
		"a copy":             {bytes.Clone(raw), raw, false},
		"its beginning":      {raw[:3], raw, false},
		"two without bytes":  {nil, []byte{}, true},
		"nothing, something": {nil, raw, false},
		"something, nothing": {raw, nil, false},
	} {
		if Same(c.out, c.raw) != c.want {
			t.Errorf("%s: the same memory: %v", name, !c.want)
		}
	}
}

// twice replaces 1 by 2, and returns any other value itself.
func twice(raw []byte) []byte {
	if string(raw) == "1" {
		return []byte("2")
	}
	return raw
}

// TestWithin: a function is applied to one member, to the elements or to the members, and
// where it changes nothing, the value itself comes back.
func TestWithin(t *testing.T) {
	t.Parallel()
	member := func(raw []byte) []byte { return InMember(raw, "a", twice) }
	for _, c := range []struct {
		name    string
		f       func([]byte) []byte
		in, out string
	}{
		{"a member", member, `{ "b":1, "a":1 }`, `{ "b":1, "a":2 }`},
		{"a member that stays", member, `{ "b":1, "a":3 }`, ``},
		{"no such member", member, `{ "b":1 }`, ``},
		{"no object", member, `[1]`, ``},
		{"elements", InElements(twice), `[1, 3 ,1]`, `[2,3,2]`},
		{"the first element", InElements(twice), `[1,3]`, `[2,3]`},
		{"the last element", InElements(twice), `[3,1]`, `[3,2]`},
		{"elements that stay", InElements(twice), `[ 3, "1" ]`, ``},
		{"no elements", InElements(twice), `[ ]`, ``},
		{"no array", InElements(twice), `{"a":1}`, ``},
		{"no bytes of an array", InElements(twice), ``, ``},
		{"members", InMembers(twice), `{"a": 1, "b":3,"c" :1}`, `{"a": 2, "b":3,"c" :2}`},
		{"members that stay", InMembers(twice), `{ "a":3 }`, ``},
		{"no members", InMembers(twice), `{ }`, ``},
		{"an array instead of members", InMembers(twice), `[1]`, ``},
		{"no bytes of an object", InMembers(twice), ``, ``},
		{"elements of a member", func(raw []byte) []byte { return InMember(raw, "a", InElements(twice)) }, `{"a":[1]}`, `{"a":[2]}`},
	} {
		raw := []byte(c.in)
		out := c.f(raw)
		if stays := c.out == ""; Same(out, raw) != stays {
			t.Errorf("%s: %s is the value itself: %v", c.name, out, !stays)
		} else if !stays && string(out) != c.out {
			t.Errorf("%s: %s became %s, want %s", c.name, c.in, out, c.out)
		}
		if string(raw) != c.in {
			t.Errorf("%s: the original changed to %s", c.name, raw)
		}
	}
}
