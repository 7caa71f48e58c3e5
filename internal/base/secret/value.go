// Package secret resolves references to secrets and keeps the secrets from being printed.
//
// A configuration names the place of a password instead of the password. A password that
// was read must not reach a log, an error or an answer because a value that contains it is
// printed.
//
// Invariant: the text of a Value is available only through Reveal, and no error of this
// package contains any part of it.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// hidden is the printed form of every Value.
const hidden = "[secret]"

// Value is a secret text. The zero Value is empty. Its printed form is always [secret].
type Value struct {
	// text is a pointer because fmt prints the unexported fields of a struct around a Value
	// without calling the methods of Value: it then prints an address and not the text.
	text *string
}

// New makes a Value of s.
func New(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{text: &s}
}

// Reveal returns the text, for the one place that uses it.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// Empty reports whether there is no text.
func (v Value) Empty() bool { return v.text == nil }

// Equal reports whether v and w are equal, in a time that depends only on the lengths.
func (v Value) Equal(w Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(w.Reveal())) == 1
}

// String returns [secret], and so do GoString, Format, LogValue, MarshalText and MarshalJSON.
func (Value) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (Value) GoString() string { return hidden }

// Format implements fmt.Formatter, for every verb.
func (Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON implements json.Marshaler.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }
