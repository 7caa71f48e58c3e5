package audit

// The form of a line. Invariant: a line that ParseLine accepts is one JSON object that
// every reader reads as the same record, and Intact holds for exactly the bytes
// that were written.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	hashMember = `,"hash":"`
	prevMember = `,"prev":"`
	hexLen     = 2 * sha256.Size
	// hashTail and prevTail are the lengths of the last two members at the end of a
	// line, without the newline.
	hashTail = len(hashMember) + hexLen + len(`"}`)
	prevTail = len(prevMember) + hexLen + len(`"`)
)

// Line is one parsed line of the log. Its slices alias the text.
type Line struct {
	Seq        uint64
	Prev, Hash []byte // hex
	signed     []byte // the bytes that the hash is over
}

// ParseLine parses a line without its newline. It accepts exactly one JSON object
// without duplicate names that begins with seq, time, kind and source, ends with
// prev and hash, and has no unescaped control character. It does not check the
// hash. It accepts unknown members in between, because a later version may have
// written them.
func ParseLine(text []byte) (l Line, ok bool) {
	if len(text) >= MaxLine || len(text) < hashTail+prevTail {
		return l, false
	}
	at := len(text) - hashTail
	l.signed = text[:at]
	l.Hash, ok = hexMember(text[at:], hashMember, `"}`)
	if !ok || bytes.Index(text, []byte(`,"hash":`)) != at {
		return l, false
	}
	if l.Prev, ok = hexMember(text[at-prevTail:at], prevMember, `"`); !ok {
		return l, false
	}
	if l.Seq, ok = parseHead(text); !ok {
		return l, false
	}
	return l, !bytes.ContainsAny(text, "\t\n\r") && jsontext.Value(text).IsValid()
}

// Intact reports whether the line's hash is that of its text.
func (l *Line) Intact() bool {
	sum := sha256.Sum256(l.signed)
	var want [hexLen]byte
	hex.Encode(want[:], sum[:])
	return bytes.Equal(want[:], l.Hash)
}

// hexMember returns the digits between before and after. text has the length of the member.
func hexMember(text []byte, before, after string) ([]byte, bool) {
	text, ok := bytes.CutPrefix(text, []byte(before))
	if !ok {
		return nil, false
	}
	text, ok = bytes.CutSuffix(text, []byte(after))
	return text, ok && len(bytes.Trim(text, "0123456789abcdef")) == 0
}

// parseHead reads `{"seq":N,"time":"…","kind":"…","source":"` and returns N.
func parseHead(text []byte) (seq uint64, ok bool) {
	if text, ok = bytes.CutPrefix(text, []byte(`{"seq":`)); !ok {
		return 0, false
	}
	digits, text, _ := bytes.Cut(text, []byte(`,"time":"`))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || digits[0] == '0' {
		return 0, false
	}
	stamp, text, ok := bytes.Cut(text, []byte(`","kind":"`))
	if !ok || !isTime(stamp) {
		return 0, false
	}
	return seq, bytes.HasPrefix(text[StringEnd(text):], []byte(`","source":"`))
}

// StringEnd returns the position of the first unescaped quote.
func StringEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// timeShape is RFC 3339 in UTC with six digits of a second; a 0 stands for any digit.
const timeShape = "0000-00-00T00:00:00.000000Z"

func isTime(b []byte) bool {
	if len(b) != len(timeShape) {
		return false
	}
	for i, c := range b {
		if want := timeShape[i]; want == '0' && (c < '0' || c > '9') || want != '0' && c != want {
			return false
		}
	}
	return true
}
