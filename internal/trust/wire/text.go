package wire

// Strings and numbers. Invariant: accepted strings are valid UTF-8 without lone
// surrogates, and accepted numbers have a bounded length.

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// textKind is the set of things that a scanned string contains beside plain ASCII.
type textKind uint8

const (
	hasEscape textKind = 1 << iota
	hasWide            // bytes of 0x80 and above
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special sets the high bit of each byte of x that a string scan must examine: quote,
// backslash, control, non-ASCII. A borrow can only falsify the mark of a byte above a
// marked one, so the lowest mark is exact.
func special(x uint64) uint64 {
	return (x | (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & highs
}

// text scans the string whose opening quote is at p.
func (s *scanner) text(p int) (end int, kind textKind) {
	b := s.b
	p++
	for {
		p = plain(b, p)
		if p >= len(b) {
			return s.fail(p, reasonEOF), 0
		}
		switch c := b[p]; {
		case c == '"':
			return p + 1, kind
		case c == '\\':
			kind |= hasEscape
			if p = s.escape(p); p == -1 {
				return -1, 0
			}
		case c >= utf8.RuneSelf:
			kind |= hasWide
			if p = s.wide(p); p == -1 {
				return -1, 0
			}
		default:
			return s.fail(p, reasonControl), 0
		}
	}
}

// plain returns the offset of the first byte from p on that a string scan must examine
// (see special), or len(b).
func plain(b []byte, p int) int {
	for len(b)-p >= 8 {
		if m := special(binary.LittleEndian.Uint64(b[p:])); m != 0 {
			return p + bits.TrailingZeros64(m)/8
		}
		p += 8
	}
	for p < len(b) && b[p] >= ' ' && b[p] != '"' && b[p] != '\\' && b[p] < utf8.RuneSelf {
		p++
	}
	return p
}

// wide checks a run of multi-byte UTF-8 sequences from p on. The frequent sequences of
// two and three bytes whose validity depends only on the kinds of their bytes come first.
func (s *scanner) wide(p int) int {
	b := s.b
	for p < len(b) && b[p] >= utf8.RuneSelf {
		switch c := b[p]; {
		case c >= 0xE1 && c != 0xED && c <= 0xEF && len(b)-p > 2 && b[p+1]&0xC0 == 0x80 && b[p+2]&0xC0 == 0x80:
			p += 3
		case c >= 0xC2 && c <= 0xDF && len(b)-p > 1 && b[p+1]&0xC0 == 0x80:
			p += 2
		default:
			_, n := utf8.DecodeRune(b[p:])
			if n == 1 { // a byte above 0x7F is no character by itself
				return s.fail(p, reasonUTF8)
			}
			p += n
		}
	}
	return p
}

// escape checks the escape sequence at p; surrogates have to come in pairs.
func (s *scanner) escape(p int) int {
	b := s.b
	if p+1 >= len(b) {
		return s.fail(len(b), reasonEOF)
	}
	switch b[p+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return p + 2
	case 'u':
	default:
		return s.fail(p, reasonEscape)
	}
	r := hex4(b[p+2:])
	switch {
	case r < 0:
		return s.fail(p, reasonEscape)
	case !utf16.IsSurrogate(r):
		return p + 6
	}
	if len(b) < p+12 || b[p+6] != '\\' || b[p+7] != 'u' ||
		utf16.DecodeRune(r, hex4(b[p+8:])) == utf8.RuneError {
		return s.fail(p, reasonSurrogate)
	}
	return p + 12
}

// hex4 returns the value of the four hexadecimal digits that b starts with, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// number scans a number by the grammar of RFC 8259, section 6.
func (s *scanner) number(p int) int {
	b, start := s.b, p
	if b[p] == '-' {
		p++
	}
	if p < len(b) && b[p] == '0' {
		p++
	} else if p = s.digits(p); p == -1 {
		return -1
	}
	if p < len(b) && b[p] == '.' {
		if p = s.digits(p + 1); p == -1 {
			return -1
		}
	}
	if p < len(b) && b[p]|0x20 == 'e' {
		if p++; p < len(b) && (b[p] == '+' || b[p] == '-') {
			p++
		}
		if p = s.digits(p); p == -1 {
			return -1
		}
	}
	if p-start > maxNumber {
		return s.fail(start, reasonLongNumber)
	}
	return p
}

// digits scans one digit or more.
func (s *scanner) digits(p int) int {
	start := p
	for p < len(s.b) && s.b[p]-'0' <= 9 {
		p++
	}
	if p == start {
		return s.fail(p, reasonNumber)
	}
	return p
}

// Text returns the unescaped text of a raw JSON string; false: raw is not a string.
func Text(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(body)), raw)
	return string(text), err == nil
}
