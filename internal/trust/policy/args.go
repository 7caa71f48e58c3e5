package policy

// Conversion of arguments for rules. Invariant: arguments have one meaning, and the cost
// of reading them is bounded by their size and the limits below.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

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

var errTooMuch = errors.New("the arguments are too deep or too large for a rule to read")

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
	if r.dec.PeekKind() != '{' {
		return types.Record{}, errors.New("the arguments are not an object")
	}
	record, err := r.object(maxArgDepth, false, n)
	if err != nil {
		return types.Record{}, err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return types.Record{}, errors.New("there is data after the arguments")
	}
	return record, nil
}

type argReader struct {
	dec          *jsontext.Decoder
	values, sets int // how many more may follow
}

// value reads one value; nil stands for null. inSet means that it is inside an array.
func (r *argReader) value(depth int, inSet bool) (types.Value, error) {
	r.values--
	if r.values < 0 || depth <= 0 {
		return nil, errTooMuch
	}
	switch r.dec.PeekKind() {
	case '{':
		return r.object(depth, inSet, nil)
	case '[':
		return r.array(depth, inSet)
	}
	tok, err := r.dec.ReadToken()
	if err != nil {
		return nil, fmt.Errorf("reading an argument: %w", err)
	}
	switch tok.Kind() {
	case '"':
		return types.String(tok.String()), nil
	case 't', 'f':
		return types.Boolean(tok.Bool()), nil
	case '0':
		return numberOf(tok.String()), nil
	}
	return nil, nil
}

// numberOf returns an integer that fits as a Long, and any other number as a String of
// its characters.
func numberOf(digits string) types.Value {
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return types.Long(n)
	}
	return types.String(digits)
}

// object reads an object. n selects the members of the outermost object; nil: all members.
func (r *argReader) object(depth int, inSet bool, n *need) (types.Record, error) {
	if _, err := r.dec.ReadToken(); err != nil {
		return types.Record{}, fmt.Errorf("reading an object: %w", err)
	}
	m := types.RecordMap{}
	for r.dec.PeekKind() == '"' {
		tok, err := r.dec.ReadToken()
		if err != nil {
			return types.Record{}, fmt.Errorf("reading a name: %w", err)
		}
		name := tok.String()
		if n != nil && !n.reads(name) {
			if err := r.dec.SkipValue(); err != nil {
				return types.Record{}, fmt.Errorf("passing over %.64q: %w", name, err)
			}
			continue
		}
		v, err := r.value(depth-1, inSet)
		if err != nil {
			return types.Record{}, err
		}
		if v != nil {
			m[types.String(name)] = v
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return types.Record{}, fmt.Errorf("reading the end of an object: %w", err)
	}
	return types.NewRecord(m), nil
}

func (r *argReader) array(depth int, inSet bool) (types.Value, error) {
	if inSet {
		r.sets--
	}
	if r.sets < 0 {
		return nil, errTooMuch
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, fmt.Errorf("reading an array: %w", err)
	}
	var all []types.Value
	for k := r.dec.PeekKind(); k != ']' && k != 0; k = r.dec.PeekKind() {
		v, err := r.value(depth-1, true)
		if err != nil {
			return nil, err
		}
		if v != nil {
			all = append(all, v)
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, fmt.Errorf("reading the end of an array: %w", err)
	}
	return types.NewSet(all...), nil
}
