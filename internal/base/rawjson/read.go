package rawjson

import (
	"bytes"
	"iter"
	"strings"

	"github.com/doorward/doorward/internal/trust/wire"
)

// cursor iterates over the members of an object or the elements of an array that
// is known to be valid JSON. It reads as little as possible and checks only that it stays
// inside the bytes.
type cursor struct {
	b     []byte
	p     int
	keyAt int // offset of the key that member returned last
}

// open returns a cursor behind the bracket c; false: b does not begin with c.
func open(b []byte, c byte) (cursor, bool) {
	w := cursor{b: b}
	w.space()
	if w.p >= len(b) || b[w.p] != c {
		return w, false
	}
	w.p++
	return w, true
}

// space skips white space, commas and colons.
func (w *cursor) space() {
	for w.p < len(w.b) {
		switch w.b[w.p] {
		case ' ', '\n', '\r', '\t', ',', ':':
			w.p++
		default:
			return
		}
	}
}

// value returns the next value; nil at the end of the container.
func (w *cursor) value() []byte {
	w.space()
	start := w.p
	if w.p >= len(w.b) || w.b[w.p] == '}' || w.b[w.p] == ']' {
		return nil
	}
	w.p = skip(w.b, w.p)
	return w.b[start:w.p:w.p]
}

// member returns the next key, quotes included, and its value; nil at the end.
func (w *cursor) member() (rawKey, value []byte) {
	if rawKey = w.value(); rawKey == nil {
		return nil, nil
	}
	w.keyAt = w.p - len(rawKey)
	return rawKey, w.value()
}

// skip returns the offset behind the value at p, or len(b).
func skip(b []byte, p int) int {
	switch b[p] {
	case '"':
		return StringEnd(b, p)
	case '{', '[':
		return skipContainer(b, p)
	}
	for p < len(b) {
		switch b[p] {
		case ',', ':', '}', ']', ' ', '\n', '\r', '\t':
			return p
		}
		p++
	}
	return p
}

// StringEnd returns the offset behind the JSON string whose opening quote is at p. A
// quote ends the string if it follows an even number of backslashes.
func StringEnd(b []byte, p int) int {
	for p++; p < len(b); {
		n := bytes.IndexByte(b[p:], '"')
		if n < 0 {
			break
		}
		slash := p + n
		for slash > p && b[slash-1] == '\\' {
			slash--
		}
		escaped := (p+n-slash)%2 != 0
		if p += n + 1; !escaped {
			return p
		}
	}
	return len(b)
}

// skipContainer returns the offset behind the object or array at p.
func skipContainer(b []byte, p int) int {
	depth := 0
	for p < len(b) {
		switch b[p] {
		case '"':
			p = StringEnd(b, p)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return p + 1
			}
		}
		p++
	}
	return len(b)
}

// keyIs reports whether the raw key, quotes included, stands for want.
func keyIs(rawKey []byte, want string) bool {
	if len(rawKey) < 2 {
		return false
	}
	body := rawKey[1 : len(rawKey)-1]
	if string(body) == want {
		return strings.IndexByte(want, '\\') < 0 // otherwise the key has an escape and means another text
	}
	if len(body) <= len(want) || bytes.IndexByte(body, '\\') < 0 {
		return false
	}
	name, _ := wire.Text(rawKey)
	return name == want
}

// Get returns the raw value of the member key of obj; nil when there is none, and
// when obj is not an object.
func Get(obj []byte, key string) []byte {
	w, ok := open(obj, '{')
	for ok {
		k, v := w.member()
		if v == nil {
			return nil
		}
		if keyIs(k, key) {
			return v
		}
	}
	return nil
}

// GetPath applies Get once for each of the keys.
func GetPath(obj []byte, keys ...string) []byte {
	for _, k := range keys {
		if obj = Get(obj, k); obj == nil {
			return nil
		}
	}
	return obj
}

// GetString returns the text of the member key of obj; false when there is none
// and when it is not a string.
func GetString(obj []byte, key string) (string, bool) {
	return wire.Text(Get(obj, key))
}

// Members yields the unescaped key and the raw value of each member of obj,
// in the order of the bytes; nothing when obj is not an object.
func Members(obj []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, value := range Fields(obj) {
			if name, _ := wire.Text(key.In(obj)); !yield(name, value.In(obj)) {
				return
			}
		}
	}
}

// Fields yields the positions of the key, quotes included, and the value of each member
// of obj, in the order of the bytes; nothing when obj is not an object.
func Fields(obj []byte) iter.Seq2[wire.Span, wire.Span] {
	return func(yield func(key, value wire.Span) bool) {
		w, ok := open(obj, '{')
		for ok {
			k, v := w.member()
			if v == nil || !yield(wire.Span{Start: w.keyAt, End: w.keyAt + len(k)}, wire.Span{Start: w.p - len(v), End: w.p}) {
				return
			}
		}
	}
}

// Elements yields each raw element of arr; nothing when arr is not an array.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w, ok := open(arr, '[')
		for ok {
			v := w.value()
			if v == nil || !yield(v) {
				return
			}
		}
	}
}
