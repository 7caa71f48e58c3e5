package plaintext

import "strings"

// esc begins a terminal sequence (ECMA-48). A C1 control begins one too: it is equivalent
// to esc and the byte 0x40 below it.
const esc = 0x1B

// sequence returns the length of the terminal sequence at the beginning of s. Its
// introducer is ESC and another byte, or one C1 control, of size bytes. If the
// sequence does not end on its line, only the length of the introducer is returned, so
// that no text is lost; the rest is harmless without the introducer. looked is the
// position up to which no terminator of a text sequence was found, or 0. barren
// means that an earlier call found that already: otherwise many introducers would cost
// quadratic time.
func sequence(s string, r rune, size int, barren bool) (length, looked int) {
	kind, at := byte(r-0x40), size // a C1 control is equivalent to ESC and this byte
	if r == esc {
		if len(s) < 2 {
			return 1, 0
		}
		kind, at = s[1], 2
	}
	switch {
	case kind == '[':
		return control(s, at), 0
	case kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_':
		if barren {
			return at, 0
		}
		return text(s, at)
	case r != esc:
		return size, 0
	case kind >= 0x20 && kind <= 0x2F: // ESC, intermediates, final
		return intermediate(s, at), 0
	case kind >= 0x30 && kind <= 0x7E:
		return 2, 0
	}
	return 1, 0
}

// control returns the length of a control sequence (CSI), up to its final byte.
func control(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7E:
			return i + 1
		case c < 0x20 || c > 0x3F:
			return at
		}
	}
	return at
}

// intermediate returns the length of an escape sequence with intermediate bytes.
func intermediate(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x30 && c <= 0x7E:
			return i + 1
		case c < 0x20 || c > 0x2F:
			return at
		}
	}
	return at
}

// text returns the length of a sequence with text, such as OSC or DCS, up to BEL or ST.
func text(s string, at int) (length, looked int) {
	for i := at; i < len(s); i++ {
		switch {
		case s[i] == '\n':
			return at, i
		case s[i] == 0x07:
			return i + 1, 0
		case strings.HasPrefix(s[i:], "\x1b\\"), strings.HasPrefix(s[i:], "\u009c"):
			return i + 2, 0
		}
	}
	return at, len(s)
}
