// Package secret holds references to secrets, and the secrets themselves once they have been fetched.
//
// It exists so that a password in a configuration is a name for where the password is, and so that the password,
// once known, cannot reach a log, an error or an answer by being printed along with something else. Its invariant:
// the text of a Value leaves it through Reveal and no other way, and no error of this package holds any part of one.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// hidden is what every printed form of a Value says.
const hidden = "[secret]"

// Value is a secret text. The zero Value is empty. Printing one, in whatever way, gives [secret].
type Value struct {
	// A pointer, because fmt prints the unexported fields of a struct around it without asking Value's methods: it
	// then shows an address and not the text.
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

// Empty tells whether there is no text.
func (v Value) Empty() bool { return v.text == nil }

// Equal compares in a time that depends on the lengths alone.
func (v Value) Equal(w Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(w.Reveal())) == 1
}

// String, GoString, Format, LogValue, MarshalText and MarshalJSON all give [secret].
func (Value) String() string { return hidden }

// GoString is for %#v.
func (Value) GoString() string { return hidden }

// Format is for every verb of fmt.
func (Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }

// LogValue is for log/slog.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText is for encoding/xml, flag and their like.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON is for encoding/json.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }
