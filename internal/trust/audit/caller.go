package audit

// References to a caller. Invariant: a reference names a record of the same segment
// that has facts and session in full.

import "strconv"

// The members facts and session of a record are the same for all acts of a connection.
// The first record of a caller in a segment has them; later records in that segment have
// the number of that record instead. A reference never leaves its segment, so that a
// segment can be read when the segments before it were removed.

const (
	// AsMember begins the reference to the record with facts and session.
	AsMember = `,"as":`
	// CallersKept is the most callers that the writer and a reader remember;
	// callerBytes is about the most bytes of their members.
	CallersKept = 4096
	callerBytes = 4 << 20
	// ShortCaller is the length in bytes up to which the members of a caller are
	// written again instead of a reference.
	ShortCaller = 32
)

// body is a line without the members that depend on its place in the chain. text[from:to]
// are the members facts and session.
type body struct {
	text     []byte
	from, to int
}

// callers holds the callers whose members the segment being written has in full: the
// text of the members, and the number of the record. Only the leader uses it.
type callers struct {
	known map[string]uint64
	bytes int
}

func (c *callers) reset() { *c = callers{} }

// appendReferring appends b to dst, with a reference in place of facts and session if an
// earlier record of the segment has them. next is the number of the record.
func (c *callers) appendReferring(dst []byte, b body, next uint64) []byte {
	who := b.text[b.from:b.to]
	if len(who) <= ShortCaller {
		return append(dst, b.text...)
	}
	if first := c.known[string(who)]; first != 0 {
		dst = strconv.AppendUint(append(append(dst, b.text[:b.from]...), AsMember...), first, 10)
		return append(dst, b.text[b.to:]...)
	}
	if c.known == nil || len(c.known) >= CallersKept || c.bytes > callerBytes {
		*c = callers{known: make(map[string]uint64)}
	}
	c.known[string(who)] = next
	c.bytes += len(who)
	return append(dst, b.text...)
}
