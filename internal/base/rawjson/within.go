package rawjson

import "github.com/doorward/doorward/internal/trust/wire"

// Empty is the empty object. It must not be changed.
var Empty = []byte(`{}`)

// AppendComma appends a comma to b, the beginning of an array or object, unless b is only
// the opening bracket.
func AppendComma(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

// IsTrue reports whether raw is the literal true.
func IsTrue(raw []byte) bool { return string(raw) == "true" }

// Same reports whether out and raw are the same memory, so that nothing was changed.
func Same(out, raw []byte) bool {
	return len(out) == len(raw) && (len(out) == 0 || &out[0] == &raw[0])
}

// IsText reports whether raw is a JSON string whose text is want.
func IsText(raw []byte, want string) bool {
	text, ok := wire.Text(raw)
	return ok && text == want
}

// InMember applies f to the value of one member of an object, if it exists.
func InMember(raw []byte, key string, f func([]byte) []byte) []byte {
	value := Get(raw, key)
	if value == nil {
		return raw
	}
	if out := f(value); !Same(out, value) {
		return Set(raw, Edit{Key: key, Value: out})
	}
	return raw
}

// InElements returns a function that applies f to the elements of an array, and returns
// any other value unchanged.
func InElements(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '[' {
			return raw
		}
		out, changed := []byte{'['}, false
		for e := range Elements(raw) {
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

// InMembers returns a function that applies f to the values of an object's members, and
// returns any other value unchanged.
func InMembers(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '{' {
			return raw
		}
		var edits []Edit
		for key, value := range Members(raw) {
			if out := f(value); !Same(out, value) {
				edits = append(edits, Edit{Key: key, Value: out})
			}
		}
		return Set(raw, edits...)
	}
}
