package rawjson

import "github.com/doorward/doorward/internal/trust/wire"

// Empty is the empty object. It is not changed.
var Empty = []byte(`{}`)

// AppendComma adds the comma in front of a further element of the array or member of
// the object that b begins.
func AppendComma(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

// IsTrue reports the literal true.
func IsTrue(raw []byte) bool { return string(raw) == "true" }

// Same reports whether out is raw itself, not changed and not copied.
func Same(out, raw []byte) bool {
	return len(out) == len(raw) && (len(out) == 0 || &out[0] == &raw[0])
}

// IsText reports a string whose text is want.
func IsText(raw []byte, want string) bool {
	text, ok := wire.Text(raw)
	return ok && text == want
}

// InMember applies f to one member of an object, if it is there.
func InMember(raw []byte, key string, f func([]byte) []byte) []byte {
	value := wire.Get(raw, key)
	if value == nil {
		return raw
	}
	if out := f(value); !Same(out, value) {
		return Set(raw, Edit{Key: key, Value: out})
	}
	return raw
}

// InElements applies f to the elements of an array; anything else stays as it is.
func InElements(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '[' {
			return raw
		}
		out, changed := []byte{'['}, false
		for e := range wire.Elements(raw) {
			with := f(e)
			changed = changed || !Same(with, e)
			out = append(AppendComma(out), with...)
		}
		if !changed {
			return raw
		}
		return append(out, ']')
	}
}

// InMembers applies f to the values of an object; anything else stays as it is.
func InMembers(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '{' {
			return raw
		}
		var edits []Edit
		for key, value := range wire.Members(raw) {
			if out := f(value); !Same(out, value) {
				edits = append(edits, Edit{Key: key, Value: out})
			}
		}
		return Set(raw, edits...)
	}
}
