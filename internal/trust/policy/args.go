package policy

// Conversion of arguments for rules. Invariant: arguments have one meaning, and the cost
// of reading them is bounded by their size and the limits below.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the arguments that rules read. Cedar stores a set by the hashes of its
// elements, and the hash of a set is a sum, so that a caller can construct sets with
// equal hashes. Sets within sets can then cost the square of their number; hence the low
// bound on them.
const (
	maxArgDepth  = 32   // nested containers
	maxArgValues = 2048 // all values together
	maxArgSets   = 64   // arrays inside another array
)

var (
	errTooMuch = errors.New("the arguments are too deep or too large for a rule to read")
	errMore    = errors.New("there is data after the arguments")
)

// need is the set of arguments that some rules read: all of them, or those of
// these names. Other arguments are not converted and do not count for the bounds.
type need struct {
	all   bool
	names []string
}

func (n *need) add(m *need) {
	n.all = n.all || m.all
	for _, name := range m.names {
		if !slices.Contains(n.names, name) {
			n.names = append(n.names, name)
		}
	}
}

func (n *need) reads(name string) bool { return n.all || slices.Contains(n.names, name) }

// arguments converts a JSON object into a Cedar record. Strings, booleans and integers of
// 64 bits keep their values; every other number becomes a string of its characters, an
// array a set, an object a record. A null is left out. A nil raw is a call without arguments.
func arguments(raw []byte, n *need) (types.Record, error) {
	if raw == nil {
		return types.Record{}, nil
	}
	r := argReader{dec: jsontext.NewDecoder(bytes.NewBuffer(raw)), values: maxArgValues, sets: maxArgSets}
	if r.next() != '{' {
		return types.Record{}, errors.New("the arguments are not an object")
	}
	record := r.object(maxArgDepth, false, n)
	if r.token(); !errors.Is(r.err, io.EOF) {
		return types.Record{}, fmt.Errorf("reading the arguments to their end: %w", cmp.Or(r.err, errMore))
	}
	return record, nil
}

// argReader reads values until the first error.
type argReader struct {
	dec          *jsontext.Decoder
	values, sets int // how many more may follow
	err          error
}

// token reads the next token; it is the zero Token after an error.
func (r *argReader) token() (tok jsontext.Token) {
	if r.err == nil {
		tok, r.err = r.dec.ReadToken()
	}
	return tok
}

// next returns the kind of the next token; 0 after an error.
func (r *argReader) next() jsontext.Kind {
	if r.err != nil {
		return 0
	}
	return r.dec.PeekKind()
}

// value reads one value; nil stands for null. inSet means that it is inside an array.
func (r *argReader) value(depth int, inSet bool) types.Value {
	r.values--
	if r.values < 0 || depth <= 0 {
		r.err = errTooMuch
	}
	switch r.next() {
	case '{':
		return r.object(depth, inSet, nil)
	case '[':
		return r.array(depth, inSet)
	}
	switch tok := r.token(); tok.Kind() {
	case '"':
		return types.String(tok.String())
	case 't', 'f':
		return types.Boolean(tok.Bool())
	case '0':
		if n := long(tok.String()); n != nil {
			return n
		}
		return types.String(tok.String())
	}
	return nil
}

// object reads an object. n selects the members of the outermost object; nil: all members.
func (r *argReader) object(depth int, inSet bool, n *need) types.Record {
	r.token()
	m := types.RecordMap{}
	for r.next() == '"' {
		name := r.token().String()
		switch {
		case n == nil || n.reads(name):
			if v := r.value(depth-1, inSet); v != nil {
				m[types.String(name)] = v
			}
		case r.err == nil:
			r.err = r.dec.SkipValue()
		}
	}
	r.token()
	return types.NewRecord(m)
}

func (r *argReader) array(depth int, inSet bool) types.Set {
	if inSet {
		r.sets--
	}
	if r.sets < 0 {
		r.err = errTooMuch
	}
	r.token()
	var all []types.Value
	for k := r.next(); k != ']' && k != 0; k = r.next() {
		if v := r.value(depth-1, true); v != nil {
			all = append(all, v)
		}
	}
	r.token()
	return types.NewSet(all...)
}
