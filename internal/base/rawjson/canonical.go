package rawjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns raw in the form of RFC 8785, except that the text of numbers
// stays: 1 and 1.0 are different, since some readers distinguish them. It is
// meant for digests of definitions and for showing them to a person. A raw that is not
// valid JSON is returned as a copy.
func Canonical(raw []byte) []byte {
	v := jsontext.Value(bytes.Clone(raw))
	if v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		return bytes.Clone(raw)
	}
	return v
}
