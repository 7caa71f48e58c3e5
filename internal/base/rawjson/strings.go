package rawjson

import (
	"bytes"

	"github.com/doorward/doorward/internal/trust/wire"
)

// String is one JSON string inside a value, as MapStrings finds it.
type String struct {
	Text  []byte // unescaped; aliases the value where it has no escapes
	Key   []byte // the unescaped key of the member whose value it is; nil for an element of an array, and for a key
	IsKey bool   // it is itself the key of a member
}

// MapStrings gives every string in raw, keys too, to f in the order of the
// bytes, and puts what f returns in its place where f returns true. All other
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
	at     int    // behind the last string
	key    []byte // of the value that comes next, nil inside an array
	out    []byte // nil while nothing was replaced
	copied int    // up to here raw is in out
}

// between forgets the key once its value has begun with something else than a
// string, or is over.
func (m *stringMap) between(gap []byte) {
	if m.key != nil && bytes.ContainsAny(gap, ",[{") {
		m.key = nil
	}
}

// one handles the string whose opening quote is at p.
func (m *stringMap) one(p int) {
	m.at = wire.StringEnd(m.raw, p)
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

// isKey reports whether a colon follows.
func isKey(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \n\r\t")
	return len(rest) > 0 && rest[0] == ':'
}
