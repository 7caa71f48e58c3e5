package auditlog

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/doorward/doorward/internal/trust/audit"
)

// Showing puts facts and session of the caller into records that refer to an earlier
// record instead. It takes the lines of one log in ascending order, from the first of a
// segment on. Functions of this package return lines that were shown already. The hash of
// a record is over the line as Export writes it, not over a shown line.
type Showing struct {
	recent, older map[uint64][]byte                // members facts and session, by the number of the record
	find          func(seq uint64) ([]byte, error) // nil: Show gets all lines in order
}

// Show returns the line, or a new one in which facts and session replace the
// reference. A reference to a missing record stays.
func (s *Showing) Show(line []byte) []byte { return s.show(nil, line) }

// show is Show; it appends a new line to dst.
func (s *Showing) show(dst, line []byte) []byte {
	at := callerAt(line)
	digits, isRef := bytes.CutPrefix(line[at:], []byte(audit.AsMember))
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

// learn keeps the members of a caller. Two maps of audit.CallersKept entries suffice: the
// writer refers to no caller that is further back.
func (s *Showing) learn(seq uint64, who []byte) {
	if len(who) <= audit.ShortCaller {
		return
	}
	if len(s.recent) >= audit.CallersKept || s.recent == nil {
		s.recent, s.older = make(map[uint64][]byte), s.recent
	}
	s.recent[seq] = bytes.Clone(who)
}

// of makes s look up records that it has not been given, in the first size bytes of the segment r.
func (s *Showing) of(r io.ReaderAt, size int64) *Showing {
	s.find = func(seq uint64) ([]byte, error) { return findLine(r, size, seq) }
	return s
}

// callerAt returns the offset at which a line has facts and session, or the reference in
// their place: behind the member principal, or without it behind source.
func callerAt(line []byte) int {
	const source = `","source":"`
	i := bytes.Index(line, []byte(source))
	if i < 0 {
		return len(line)
	}
	i += len(source)
	i = min(i+audit.StringEnd(line[i:])+1, len(line))
	const who = `,"principal":"`
	if rest, ok := bytes.CutPrefix(line[i:], []byte(who)); ok {
		i += len(who) + audit.StringEnd(rest) + 1
	}
	return min(i, len(line))
}

// callerIn returns the members facts and session of a line, which begin at at.
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
			end += audit.StringEnd(rest) + 1
		}
	}
	return line[at:min(end, len(line))]
}

// listEnd returns the position of the bracket that ends a list of objects of strings.
func listEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += 1 + audit.StringEnd(text[i+1:])
		case ']':
			return i
		}
	}
	return len(text)
}

// lineSeq returns the seq of a line; 0: it has none.
func lineSeq(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, found := bytes.Cut(rest[:min(len(rest), 21)], []byte{','})
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if !ok || !found || err != nil {
		return 0
	}
	return n
}

// findLine returns the line of record seq in the first size bytes of a segment; nil: there
// is none.
func findLine(r io.ReaderAt, size int64, seq uint64) ([]byte, error) {
	from, to := int64(0), size // the line is in between; both are beginnings of lines
	buf := make([]byte, audit.MaxLine+32)
	for to-from > 2*audit.MaxLine {
		part := buf[:min(int64(len(buf)), to-(from+to)/2)]
		middle := (from + to) / 2
		if err := audit.ReadAt(r, part, middle); err != nil {
			return nil, err
		}
		cut := bytes.IndexByte(part[:min(len(part), audit.MaxLine)], '\n') + 1
		n := lineSeq(part[cut:])
		switch {
		case cut == 0 || n == 0:
			return nil, fmt.Errorf("%w: no record was found in the middle of a segment", audit.ErrDamaged)
		case n <= seq:
			from = middle + int64(cut)
		default:
			to = middle + int64(cut)
		}
	}
	part := make([]byte, to-from)
	if err := audit.ReadAt(r, part, from); err != nil {
		return nil, err
	}
	for line := range bytes.Lines(part) {
		if lineSeq(line) == seq {
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		}
	}
	return nil, nil
}
