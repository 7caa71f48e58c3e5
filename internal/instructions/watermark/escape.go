package watermark

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends the decoded form of body, the inside of a JSON string.
func unescape(text, body []byte) []byte {
	for len(body) > 0 {
		n := bytes.IndexByte(body, '\\')
		if n < 0 {
			return append(text, body...)
		}
		text = append(text, body[:n]...)
		body = body[n:]
		text, n = escape(text, body)
		body = body[n:]
	}
	return text
}

// written converts spans of the decoded text to spans of body.
func written(body []byte, spans []span) {
	var offsets []int // of each decoded byte, and of the end
	var text []byte
	for i := 0; i < len(body); {
		from, n := i, 1
		if body[i] == '\\' {
			text, n = escape(text, body[i:])
		} else {
			text = append(text, body[i])
		}
		i += n
		for len(offsets) < len(text) {
			offsets = append(offsets, from)
		}
	}
	offsets = append(offsets, len(body))
	for i, s := range spans {
		spans[i].start, spans[i].end = offsets[s.start], offsets[s.end]
	}
}

// escape appends the decoded form of the escape at the beginning of body, and returns the
// length of the escape. White space of any kind becomes a space.
func escape(text, body []byte) ([]byte, int) {
	if len(body) < 2 {
		return append(text, body...), len(body)
	}
	switch c := body[1]; c {
	case 'b', 'f', 'n', 'r', 't':
		return append(text, ' '), 2
	case 'u':
	default:
		return append(text, c), 2
	}
	r := unit(body)
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, unit(body[min(6, len(body)):])); pair != utf8.RuneError {
			return utf8.AppendRune(text, pair), 12
		}
	}
	return utf8.AppendRune(text, r), min(6, len(body))
}

// unit returns the UTF-16 unit of the \u escape at the beginning of body; U+FFFD when
// there is none.
func unit(body []byte) rune {
	if len(body) < 6 || body[0] != '\\' || body[1] != 'u' {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(body[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
