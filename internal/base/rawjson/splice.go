package rawjson

import (
	"bytes"
	"slices"

	"github.com/doorward/doorward/internal/trust/wire"
)

// Edit sets one member of an object to Value, which is raw JSON, or removes it when
// Value is nil.
type Edit struct {
	Key   string
	Value []byte
}

// Set applies the edits to obj. An existing member keeps its place, missing members
// are appended in the order of the edits, and of two edits of one key the later
// one applies; every byte outside the changed members stays. A nil or empty obj
// means {}. A value that is not an object is returned unchanged.
//
// The result is new memory, unless nothing has changed: then it is obj.
func Set(obj []byte, edits ...Edit) []byte {
	if len(bytes.Trim(obj, " \n\r\t")) == 0 {
		obj = []byte("{}")
	}
	start := bytes.IndexByte(obj, '{') + 1
	if len(edits) == 0 || len(bytes.Trim(obj[:max(start-1, 0)], " \n\r\t")) > 0 || start == 0 {
		return obj
	}
	if len(edits) > maxEdits {
		return Set(Set(obj, edits[:maxEdits]...), edits[maxEdits:]...)
	}
	e := splice{obj: obj, edits: edits, out: make([]byte, 0, sizeAfter(obj, edits)), last: start}
	e.out = append(e.out, obj[:start]...)
	i := 0
	for key, value := range Fields(obj) {
		e.member(i, key.In(obj), wire.Span{Start: key.Start, End: value.End}, value.End-value.Start)
		i++
	}
	return e.finish()
}

// maxEdits is the number of edits that splice.done has bits for.
const maxEdits = 64

// splice copies an object member by member. The bytes before a key are its lead: white
// space, and from the second member on the comma. The first member that is kept gets the
// lead of the first member of obj, so that removals leave no comma behind.
type splice struct {
	obj     []byte
	edits   []Edit
	done    uint64 // bit i: the member of edit i exists in obj
	out     []byte
	last    int       // end of the previous member, kept or not
	first   wire.Span // lead of the first member
	any     bool      // a member has been written
	changed bool
}

// sizeAfter returns a capacity that suffices for obj with the edits applied, unless a key
// needs escapes.
func sizeAfter(obj []byte, edits []Edit) int {
	size := len(obj)
	for _, e := range edits {
		size += len(e.Key) + len(e.Value) + len(`,"":`)
	}
	return size
}

// member copies, changes or removes the i-th member, at the given span, whose value is the
// last n bytes of it.
func (s *splice) member(i int, rawKey []byte, at wire.Span, n int) {
	lead := wire.Span{Start: s.last, End: at.Start}
	if i == 0 {
		s.first = lead
	}
	s.last = at.End
	change := s.match(rawKey)
	if change != nil && change.Value == nil {
		s.changed = true
		return
	}
	if !s.any {
		lead = s.first
	}
	s.any = true
	s.out = append(s.out, s.obj[lead.Start:lead.End]...)
	if change == nil {
		s.out = append(s.out, s.obj[at.Start:at.End]...)
		return
	}
	s.changed = true
	s.out = append(s.out, s.obj[at.Start:at.End-n]...)
	s.out = append(s.out, change.Value...)
}

// match returns the last edit of the key; nil: there is none.
func (s *splice) match(rawKey []byte) (change *Edit) {
	for i := range s.edits {
		if keyIs(rawKey, s.edits[i].Key) {
			s.done |= 1 << i
			change = &s.edits[i]
		}
	}
	return change
}

// finish appends the missing members and the rest of the object.
func (s *splice) finish() []byte {
	for i, e := range s.edits {
		if s.done>>i&1 != 0 || e.Value == nil || s.overruled(i) {
			continue
		}
		if s.any {
			s.out = append(s.out, ',')
		}
		s.any, s.changed = true, true
		s.out = append(AppendQuote(s.out, e.Key), ':')
		s.out = append(s.out, e.Value...)
	}
	if !s.changed {
		return s.obj
	}
	return append(s.out, s.obj[s.last:]...)
}

// overruled reports whether a later edit has the same key as edit i.
func (s *splice) overruled(i int) bool {
	return slices.ContainsFunc(s.edits[i+1:], func(e Edit) bool { return e.Key == s.edits[i].Key })
}

// SetIn applies the edits to the object that is the member key of obj. A
// missing member is created, unless it would be empty. A member that is not an
// object counts as missing: it is replaced when the edits set something,
// and stays when they only remove.
func SetIn(obj []byte, key string, edits ...Edit) []byte {
	inner := Get(obj, key)
	if len(inner) == 0 || inner[0] != '{' {
		made := Set(nil, edits...)
		if len(made) == len("{}") {
			return Set(obj)
		}
		return Set(obj, Edit{key, made})
	}
	changed := Set(inner, edits...)
	if &changed[0] == &inner[0] {
		return obj
	}
	return Set(obj, Edit{key, changed})
}
