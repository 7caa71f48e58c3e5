package watermark

import (
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// code is an encoding of bytes as units of a text. Some characters are ignored between
// units; all others end a run of units.
type code struct {
	bits  int // bits of a unit
	least int // the number of units that a ref takes at least
	table [256]int8
	// begins is indexed by a pair of units, the first one in the higher bits. Bit r is
	// set if a byte that begins 2r bits into the pair can begin a ref.
	begins []uint8
	// other decodes what the table cannot: it returns the unit at the beginning of text,
	// and its size in bytes.
	other func(text []byte) (unit int8, size int)
}

// Table entries for bytes that are no unit.
const (
	between int8 = -1 - iota // ignored between units
	ends                     // ends a run
	ask                      // decided by other
)

// at returns the unit at i, or between, or ends, and its size in bytes.
func (c *code) at(text []byte, i int) (unit int8, size int) {
	if unit = c.table[text[i]]; unit != ask {
		return unit, 1
	}
	return c.other(text[i:])
}

var codes = []*code{base64Code(), hexCode()}

// base64Code accepts both alphabets, even mixed, with white space anywhere.
func base64Code() *code {
	c := &code{bits: 6, least: (len("dwi")+refLetters)*8/6 + 1, other: blank}
	const units = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for b := range c.table {
		switch {
		case b >= utf8.RuneSelf:
			c.table[b] = ask
		case b <= ' ' || b == 0x7F:
			c.table[b] = between
		default:
			c.table[b] = ends
		}
	}
	for i := range units {
		c.table[units[i]] = int8(i)
	}
	c.table['-'], c.table['_'] = 62, 63
	return c.withPairs()
}

func (c *code) withPairs() *code {
	c.begins = make([]uint8, 1<<(2*c.bits))
	for two := range c.begins {
		for r := 0; 2*r <= 2*c.bits-8 && 2*r < c.bits; r++ {
			if starts[byte(two>>(2*c.bits-8-2*r))] {
				c.begins[two] |= 1 << r
			}
		}
	}
	return c
}

// blank decodes characters outside of ASCII: white space and invisible characters are
// ignored, all others end a run.
func blank(text []byte) (int8, int) {
	r, size := utf8.DecodeRune(text)
	if unicode.IsSpace(r) || visible.Hidden(r) || unicode.In(r, unicode.Mn, unicode.Me) {
		return between, size
	}
	return ends, size
}

// hexCode accepts digits with any characters between them that are no letters, and the
// prefixes 0x, \x, #x, \u and %u in front of each number.
func hexCode() *code {
	c := &code{bits: 4, least: (len("dwi") + refLetters) * 2, other: prefixed}
	for b := range c.table {
		switch ch := byte(b); {
		case ch >= utf8.RuneSelf, ch == '\\', ch == '#', ch == '%', ch == '0', ch|0x20 == 'x', ch|0x20 == 'u':
			c.table[b] = ask
		case ch >= '1' && ch <= '9':
			c.table[b] = int8(ch - '0')
		case ch >= 'a' && ch <= 'f':
			c.table[b] = int8(ch - 'a' + 10)
		case ch >= 'A' && ch <= 'F':
			c.table[b] = int8(ch - 'A' + 10)
		case ch >= 'g' && ch <= 'z', ch >= 'G' && ch <= 'Z':
			c.table[b] = ends
		default:
			c.table[b] = between
		}
	}
	return c.withPairs()
}

func prefixed(text []byte) (int8, int) {
	switch c := text[0]; {
	case c >= utf8.RuneSelf:
		return blank(text)
	case c|0x20 == 'x' || c|0x20 == 'u': // without a prefix character before it
		return ends, 1
	}
	if len(text) > 1 && (text[1]|0x20 == 'x' || text[1]|0x20 == 'u' && text[0] != '0') {
		return between, 2
	}
	if text[0] == '0' {
		return 0, 1
	}
	return between, 1
}

// window is the sequence of bytes that units encode, beginning at one bit of them.
type window struct {
	units []byte
	bits  int // of a unit: 8, 6 or 4
	start int // the first bit
}

// at returns the j-th byte; false: it is after the end.
func (w window) at(j int) (byte, bool) {
	if w.bits == 8 {
		if j += w.start / 8; j < len(w.units) {
			return w.units[j], true
		}
		return 0, false
	}
	bit := w.start + 8*j
	k, r := bit/w.bits, bit%w.bits
	if k+1 >= len(w.units) {
		return 0, false
	}
	return byte((int(w.units[k])<<w.bits | int(w.units[k+1])) >> (2*w.bits - 8 - r)), true
}

// letter returns the folded character at the j-th byte, and its size in bytes; 0 at the
// end. Each byte that is no UTF-8 counts as nothing.
func (w window) letter(j int) (letter byte, size int) {
	b, ok := w.at(j)
	switch {
	case !ok:
		return nothing, 0
	case b < utf8.RuneSelf:
		return ascii[b], 1
	}
	var buf [utf8.UTFMax]byte
	n := 0
	for n < len(buf) {
		if buf[n], ok = w.at(j + n); !ok {
			break
		}
		n++
	}
	r, size := utf8.DecodeRune(buf[:n])
	return fold(r), size
}

// ref reads a ref that begins with the first byte: its letters and digits, with only
// ignored characters between them. The hyphen may be missing. end is the offset after the
// last one.
func (w window) ref() (k key, end int, ok bool) {
	const begin = "dwi"
	n := -len(begin)
	if !w.plausible() {
		return k, 0, false
	}
	for {
		c, size := w.letter(end)
		switch {
		case size == 0 || c == foreign || c == nothing && end == 0:
			return k, 0, false
		case c == nothing:
			end += size
			continue
		}
		end += size
		if n < 0 && c != begin[n+len(begin)] {
			return k, 0, false
		}
		if n >= 0 {
			k[n] = c
		}
		if n++; n == refLetters {
			return k, end, true
		}
	}
}

// plausible is a quick check whether a ref can begin with the first two bytes: the second
// byte excludes most candidates.
func (w window) plausible() bool {
	first, _ := w.at(0)
	next, _ := w.at(1)
	switch first {
	case 0xE2:
		return next == 0x85 || next == 0x92 || next == 0x93
	case 0xEF:
		return next == 0xBC || next == 0xBD
	case 0xF0:
		return next == 0x9D || next == 0x9F
	}
	return second[next]
}
