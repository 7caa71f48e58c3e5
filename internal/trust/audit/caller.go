package audit

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// What a record says of its caller beside the principal (facts, session) is the same for
// all acts of a connection. The first record of a caller in a segment has it; later ones in that
// segment have the number of that record in its place. So a segment can be read by
// itself, whatever was removed before it.

const (
	asMember = `,"as":`
	// callersKept is how many callers the writer and a reader remember, callerBytes how
	// many bytes of them.
	callersKept = 4096
	callerBytes = 4 << 20
	// shortCaller is the length up to which a caller is not worth a reference.
	shortCaller = 32
)

// body is a line without what depends on its place: text, and where in it stands
// what is said of the caller.
type body struct {
	text     []byte
	from, to int
}

// callers are those that the segment being written has in full, by what is said of
// them. Only the leader uses them.
type callers struct {
	known map[string]uint64
	bytes int
}

func (c *callers) reset() { *c = callers{} }

// appendReferring appends b to dst, with a reference where the segment has the caller
// already; next is the number of the record.
func (c *callers) appendReferring(dst []byte, b body, next uint64) []byte {
	who := b.text[b.from:b.to]
	if len(who) <= shortCaller {
		return append(dst, b.text...)
	}
	if first := c.known[string(who)]; first != 0 {
		dst = append(append(dst, b.text[:b.from]...), asMember...)
		dst = strconv.AppendUint(dst, first, 10)
		return append(dst, b.text[b.to:]...)
	}
	if c.known == nil || len(c.known) >= callersKept || c.bytes > callerBytes {
		*c = callers{known: make(map[string]uint64)}
	}
	c.known[string(who)] = next
	c.bytes += len(who)
	return append(dst, b.text...)
}

// Showing puts the caller back into records that refer to an earlier one. It shows
// lines of one log in ascending order, all from some segment's first on; the ones that
// the functions of this package return have been through one. Lines that were shown are
// not what the hash is over: that is the line as Export writes it.
type Showing struct {
	recent, older map[uint64][]byte // what is said of a caller, by the number of the record
	find          func(seq uint64) ([]byte, error)
}

// Show returns the line, or a new one in which facts and session stand in
// the place of the reference. A reference that leads nowhere stays.
func (s *Showing) Show(line []byte) []byte { return s.show(nil, line) }

// show is Show into dst where a new line is made.
func (s *Showing) show(dst, line []byte) []byte {
	at := callerAt(line)
	digits, isRef := bytes.CutPrefix(line[at:], []byte(asMember))
	if !isRef {
		if s.find == nil {
			s.learn(lineSeq(line), callerIn(line, at))
		}
		return line
	}
	n := len(digits) - len(bytes.TrimLeft(digits, "0123456789"))
	seq, err := strconv.ParseUint(string(digits[:n]), 10, 64)
	who := s.callerOf(seq)
	if err != nil || len(who) == 0 {
		return line
	}
	dst = append(slices.Grow(dst, len(line)+len(who)), line[:at]...)
	return append(append(dst, who...), digits[n:]...)
}

func (s *Showing) callerOf(seq uint64) []byte {
	if who := s.recent[seq]; who != nil {
		return who
	}
	if who := s.older[seq]; who != nil || s.find == nil {
		return who
	}
	line, err := s.find(seq)
	if err != nil {
		return nil
	}
	who := callerIn(line, callerAt(line))
	s.learn(seq, who)
	return who
}

// learn keeps a caller. The writer refers to none of more than callersKept before.
func (s *Showing) learn(seq uint64, who []byte) {
	if len(who) <= shortCaller {
		return
	}
	if len(s.recent) >= callersKept || s.recent == nil {
		s.recent, s.older = make(map[uint64][]byte), s.recent
	}
	s.recent[seq] = bytes.Clone(who)
}

// of makes s find what it has not met in a segment.
func (s *Showing) of(r io.ReaderAt, size int64) *Showing {
	s.find = func(seq uint64) ([]byte, error) { return findLine(r, size, seq) }
	return s
}

// callerAt is where a line says more of who acted than the principal: behind that, or
// behind its source.
func callerAt(line []byte) int {
	const source = `","source":"`
	i := bytes.Index(line, []byte(source))
	if i < 0 {
		return len(line)
	}
	i += len(source)
	i = min(i+stringEnd(line[i:])+1, len(line))
	const who = `,"principal":"`
	if rest, ok := bytes.CutPrefix(line[i:], []byte(who)); ok {
		i += len(who) + stringEnd(rest) + 1
	}
	return min(i, len(line))
}

// callerIn is what a line says of its caller in full, from at on.
func callerIn(line []byte, at int) []byte {
	end := at
	for _, member := range []string{`,"facts":[`, `,"session":"`} {
		rest, ok := bytes.CutPrefix(line[end:], []byte(member))
		if !ok {
			continue
		}
		end += len(member)
		if member == `,"facts":[` {
			end += listEnd(rest) + 1
		} else {
			end += stringEnd(rest) + 1
		}
	}
	return line[at:min(end, len(line))]
}

// listEnd is the position of the bracket that ends a list of objects of texts.
func listEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += 1 + stringEnd(text[i+1:])
		case ']':
			return i
		}
	}
	return len(text)
}

// lineSeq is the number that a line begins with; 0: it has none.
func lineSeq(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, found := bytes.Cut(rest[:min(len(rest), 21)], []byte{','})
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if !ok || !found || err != nil {
		return 0
	}
	return n
}

// findLine returns the line of record seq in the first size bytes of a segment.
func findLine(r io.ReaderAt, size int64, seq uint64) ([]byte, error) {
	from, to := int64(0), size // the line is in between, both are beginnings of lines
	buf := make([]byte, MaxLine+32)
	for to-from > 2*MaxLine {
		part := buf[:min(int64(len(buf)), to-(from+to)/2)]
		middle := (from + to) / 2
		if err := readAt(r, part, middle); err != nil {
			return nil, err
		}
		cut := bytes.IndexByte(part[:min(len(part), MaxLine)], '\n') + 1
		n := lineSeq(part[cut:])
		switch {
		case cut == 0 || n == 0:
			return nil, fmt.Errorf("%w: no record stands in the middle of a segment", ErrDamaged)
		case n <= seq:
			from = middle + int64(cut)
		default:
			to = middle + int64(cut)
		}
	}
	part := make([]byte, to-from)
	if err := readAt(r, part, from); err != nil {
		return nil, err
	}
	for line := range bytes.Lines(part) {
		if lineSeq(line) == seq {
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		}
	}
	return nil, fmt.Errorf("%w: record %d is not where another one refers to it", ErrDamaged, seq)
}
