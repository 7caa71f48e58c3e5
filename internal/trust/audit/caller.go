package audit

// References to a caller. Invariant: a reference names a record of the same segment
// that has facts and session in full.

import "strconv"

// What a record says of its caller beside the principal (facts, session) is the same for
// all acts of a connection. The first record of a caller in a segment has it; later ones in that
// segment have the number of that record in its place. So a segment can be read by
// itself, whatever was removed before it.

const (
	AsMember = `,"as":`
	// CallersKept is how many callers the writer and a reader remember, callerBytes how
	// many bytes of them.
	CallersKept = 4096
	callerBytes = 4 << 20
	// ShortCaller is the length up to which a caller is not worth a reference.
	ShortCaller = 32
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
	if len(who) <= ShortCaller {
		return append(dst, b.text...)
	}
	if first := c.known[string(who)]; first != 0 {
		dst = append(append(dst, b.text[:b.from]...), AsMember...)
		dst = strconv.AppendUint(dst, first, 10)
		return append(dst, b.text[b.to:]...)
	}
	if c.known == nil || len(c.known) >= CallersKept || c.bytes > callerBytes {
		*c = callers{known: make(map[string]uint64)}
	}
	c.known[string(who)] = next
	c.bytes += len(who)
	return append(dst, b.text...)
}
