package rawjson

import (
	"bytes"

	"github.com/doorward/doorward/internal/trust/wire"
)

// String is one JSON string inside a value, as MapStrings finds it.
type String struct {
	Text  []byte // unescaped; aliases the value if it has no escapes
	Key   []byte // the unescaped key of the member whose value it is; nil for an element of an array, and for a key
	IsKey bool   // it is itself the key of a member
}

// MapStrings calls f with every string in raw, including keys, in the order of the
// bytes, and replaces the string by the text that f returns with true. All other
// bytes stay. The result is raw itself when nothing was replaced.
func MapStrings(raw []byte, f func(String) ([]byte, bool)) []byte {
	m := stringMap{raw: raw, f: f}
	for m.at < len(raw) {
		n := bytes.IndexByte(raw[m.at:], '"')
		if n < 0 {
			break
		}
		m.between(raw[m.at : m.at+n])
		m.one(m.at + n)
	}
	if m.out == nil {
		return raw
	}
	return append(m.out, raw[m.copied:]...)
}

type stringMap struct {
	raw    []byte
	f      func(String) ([]byte, bool)
	at     int    // offset behind the last string
	key    []byte // key of the next value; nil: there is none
	out    []byte // nil while nothing was replaced
	copied int    // length of raw that was copied to out
}

// between clears the key if its value is not a string: the value has begun or ended in the
// gap between two strings.
func (m *stringMap) between(gap []byte) {
	if m.key != nil && bytes.ContainsAny(gap, ",[{") {
		m.key = nil
	}
}

// one handles the string whose opening quote is at p.
func (m *stringMap) one(p int) {
	m.at = StringEnd(m.raw, p)
	if m.at-p < 2 {
		return
	}
	text := m.raw[p+1 : m.at-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		unescaped, _ := wire.Text(m.raw[p:m.at])
		text = []byte(unescaped)
	}
	s := String{Text: text, Key: m.key, IsKey: isKey(m.raw[m.at:])}
	m.key = nil
	if s.IsKey {
		m.key, s.Key = text, nil
	}
	with, changed := m.f(s)
	if !changed {
		return
	}
	m.out = append(m.out, m.raw[m.copied:p]...)
	m.out = AppendQuote(m.out, string(with))
	m.copied = m.at
}

// isKey reports whether rest, the bytes behind a string, begins with a colon, apart from
// white space: the string is a key then.
func isKey(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \n\r\t")
	return len(rest) > 0 && rest[0] == ':'
}
