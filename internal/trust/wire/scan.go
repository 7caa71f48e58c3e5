package wire

// The scanner. Invariant: text that it accepts is one JSON value by RFC 8259 within the
// limits, read in one pass.

import (
	"bytes"
	"cmp"
	"math"
	"sync"
)

// Limits of one text. The caller bounds its size while reading it.
const (
	maxDepth   = 128     // nested containers; go-sdk allows 1000
	maxMembers = 1 << 18 // members of all objects open at one time, which the scanner has to remember
	maxNumber  = 1024    // bytes of one number: longer ones cost some decoders quadratic time
)

// Span is a range of bytes; the zero Span means "not there",
// since no member value can start at offset zero.
type Span struct{ Start, End int }

// In returns the bytes of b in the range; nil for the zero Span.
func (a Span) In(b []byte) []byte {
	if a.End == 0 {
		return nil
	}
	return b[a.Start:a.End:a.End]
}

// scanner validates one JSON text in one forward pass and notes the positions of the
// members of the envelope. Its scanning functions take the offset at which they start and
// return the offset behind what they have read, or -1 when s.err is set.
type scanner struct {
	b     []byte
	depth int
	first int // offset of the top value

	err     SyntaxError // the text is not strict JSON; the scan has stopped
	invalid SyntaxError // first violation of JSON-RPC; the scan goes on, because err takes precedence

	found     [fieldCount]Span // members of the current envelope and of its error
	questions bool             // a key so far is one that HoldsQuestions reports
	onElement func(start int)  // called behind each element of a batch

	keys    []key  // keys of all open objects, innermost last
	decoded []byte // unescaped text of those keys that have escapes
}

// Scanners are reused, so that an ordinary message costs no allocation.
var scanners = sync.Pool{New: func() any {
	return &scanner{keys: make([]key, 0, 64)}
}}

func takeScanner(b []byte) *scanner {
	s := scanners.Get().(*scanner)
	s.b = b
	return s
}

// release returns the scanner to the pool, unless its buffers have become large: such
// memory should not be kept.
func (s *scanner) release() {
	const keep = 4096
	if cap(s.keys) > keep || cap(s.decoded) > keep {
		return
	}
	*s = scanner{keys: s.keys[:0], decoded: s.decoded[:0]}
	scanners.Put(s)
}

// fail stops the scan: the text is not strict JSON. It returns -1 in the place of an offset.
func (s *scanner) fail(at int, reason string) int {
	s.err = SyntaxError{Code: codeParse, Offset: at, Reason: reason}
	return -1
}

// refuse notes the first violation of JSON-RPC.
func (s *scanner) refuse(at int, reason string) {
	if s.invalid.Code == 0 {
		s.invalid = SyntaxError{Code: codeInvalid, Offset: at, Reason: reason}
	}
}

// failure returns the error to report after document or message has failed.
func (s *scanner) failure() error {
	e := cmp.Or(s.err, s.invalid)
	return &e
}

// ValidateValue checks that b is one strict JSON value: valid UTF-8, no
// duplicate keys, depth at most 128, only white space around it. The rules
// for protocol objects are not applied.
func ValidateValue(b []byte) error {
	s := takeScanner(b)
	defer s.release()
	if s.document(levelNone) < 0 {
		return s.failure()
	}
	return nil
}

// document scans the whole input as one value of level lv.
func (s *scanner) document(lv level) int {
	if len(s.b) > math.MaxInt32 {
		return s.fail(0, reasonSize)
	}
	if bytes.HasPrefix(s.b, []byte("\uFEFF")) {
		return s.fail(0, reasonBOM)
	}
	s.first = s.space(0)
	p := s.value(s.first, lv)
	if p == -1 {
		return -1
	}
	if p = s.space(p); p < len(s.b) {
		return s.fail(p, reasonTrailing)
	}
	return p
}

// space skips the white space of RFC 8259, section 2.
func (s *scanner) space(p int) int {
	b := s.b
	for p < len(b) && b[p] <= ' ' {
		if c := b[p]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		p++
	}
	return p
}

// value scans one value.
func (s *scanner) value(p int, lv level) int {
	if p >= len(s.b) {
		return s.fail(p, reasonEOF)
	}
	switch s.b[p] {
	case '"':
		end, _ := s.text(p)
		return end
	case '{', '[':
		return s.container(p, lv)
	case 't':
		return s.literal(p, "true")
	case 'f':
		return s.literal(p, "false")
	case 'n':
		return s.literal(p, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number(p)
	}
	return s.fail(p, reasonValue)
}

func (s *scanner) literal(p int, want string) int {
	end := p + len(want)
	if end > len(s.b) || string(s.b[p:end]) != want {
		return s.fail(p, reasonLiteral)
	}
	return end
}

// container scans the object or the array at p, one level deeper.
func (s *scanner) container(p int, lv level) int {
	if s.depth == maxDepth {
		return s.fail(p, reasonDepth)
	}
	s.depth++
	if s.b[p] == '{' {
		p = s.object(p, lv)
	} else {
		p = s.array(p, lv)
	}
	s.depth--
	return p
}

// array scans from the bracket at p. Only the elements of a batch have a
// level of their own: no other array contains protocol objects that Parse reads.
func (s *scanner) array(p int, lv level) int {
	if p = s.space(p + 1); p < len(s.b) && s.b[p] == ']' {
		return p + 1
	}
	element := levelNone
	if lv == levelBatch {
		element = levelEnvelope
	}
	for {
		start := p
		if p = s.value(p, element); p == -1 {
			return -1
		}
		if lv == levelBatch {
			s.onElement(start)
			s.found = [fieldCount]Span{}
		}
		p = s.space(p)
		switch {
		case p >= len(s.b):
			return s.fail(p, reasonEOF)
		case s.b[p] == ',':
			p = s.space(p + 1)
		case s.b[p] == ']':
			return p + 1
		default:
			return s.fail(p, reasonArrayNext)
		}
	}
}

// object scans from the brace at p, and compares its keys when it closes.
func (s *scanner) object(p int, lv level) int {
	if p = s.space(p + 1); p < len(s.b) && s.b[p] == '}' {
		return p + 1
	}
	keys, decoded := len(s.keys), len(s.decoded)
	var seen uint64
	for {
		f := fieldNone
		if p, f = s.key(p, lv, &seen); p == -1 {
			return -1
		}
		start := p
		if p = s.value(p, lv.child(f)); p == -1 {
			return -1
		}
		if f != fieldNone {
			s.note(lv, f, Span{start, p})
		}
		p = s.space(p)
		switch {
		case p >= len(s.b):
			return s.fail(p, reasonEOF)
		case s.b[p] == ',':
			p = s.space(p + 1)
			continue
		case s.b[p] != '}':
			return s.fail(p, reasonObjectNext)
		}
		if !s.distinct(s.keys[keys:], lv) {
			return -1
		}
		s.keys, s.decoded = s.keys[:keys], s.decoded[:decoded]
		return p + 1
	}
}

// key scans an object key, the colon and the space around it.
func (s *scanner) key(p int, lv level, seen *uint64) (int, field) {
	if p >= len(s.b) {
		return s.fail(p, reasonEOF), fieldNone
	}
	if s.b[p] != '"' {
		return s.fail(p, reasonKey), fieldNone
	}
	end, kind := s.text(p)
	if end == -1 {
		return -1, fieldNone
	}
	f, ok := s.remember(p+1, end-1, kind, lv, seen)
	if !ok {
		return -1, fieldNone
	}
	p = s.space(end)
	if p >= len(s.b) {
		return s.fail(p, reasonEOF), fieldNone
	}
	if s.b[p] != ':' {
		return s.fail(p, reasonColon), fieldNone
	}
	return s.space(p + 1), f
}
