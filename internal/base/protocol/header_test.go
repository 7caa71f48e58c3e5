package protocol

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The first five are the specification's own examples (Streamable HTTP,
// "Value Encoding").
func TestHeader(t *testing.T) {
	t.Parallel()
	for text, value := range map[string]string{
		"us-west1":             "us-west1",
		"Hello, 世界":            "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":             "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":         "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":   "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"":                     "",
		"a b":                  "a b",
		"a\tb":                 "=?base64?YQli?=",
		"\x7f":                 "=?base64?fw==?=",
		"=?base64?open":        "=?base64?open",
		"=?BASE64?aGk=?=":      "=?BASE64?aGk=?=",
		"=?base64?=":           "=?base64?PT9iYXNlNjQ/PQ==?=",
		"file:///tmp/x?y=1&z=": "file:///tmp/x?y=1&z=",
	} {
		if got := EncodeHeader(text); got != value {
			t.Errorf("encode %q: %q, want %q", text, got, value)
		}
		if got, err := DecodeHeader(value); err != nil || got != text {
			t.Errorf("decode %q: %q, %v, want %q", value, got, err, text)
		}
	}
}

func TestDecodeHeaderTrims(t *testing.T) {
	t.Parallel()
	for _, v := range []string{" x", "x\t", " \tx \t", " =?base64?eA==?= "} {
		if got, err := DecodeHeader(v); err != nil || got != "x" {
			t.Errorf("%q: %q, %v", v, got, err)
		}
	}
	if got, err := DecodeHeader("=?base64??="); err != nil || got != "" {
		t.Errorf("empty Base64: %q, %v", got, err)
	}
}

func TestDecodeHeaderRefuses(t *testing.T) {
	t.Parallel()
	for _, v := range []string{
		"=?base64?!?=", "=?base64?eA?=", "=?base64?eA=?=", "=?base64?eB==?=", "=?base64?e A==?=", "=?base64?-_==?=",
		"=?base64?eA\n==?=", "=?base64?/w==?=", "=?base64?7aCA?=", "=?base64?=", "caf\u00e9", "a\x00b", "a\nb", "\x7f",
	} {
		if got, err := DecodeHeader(v); err == nil {
			t.Errorf("%q: accepted as %q", v, got)
		} else if strings.Contains(err.Error(), v) {
			t.Errorf("%q: the error repeats the value: %v", v, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "x", " x ", "=?base64?eA==?=", "=?base64?=", "ü", "\x00", "a\tb", "=?base64??=", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value := EncodeHeader(s)
		for i := range len(value) {
			if value[i] < ' ' || value[i] > '~' {
				t.Fatalf("%q is encoded with byte %#x", s, value[i])
			}
		}
		got, err := DecodeHeader(value)
		if valid := utf8.ValidString(s); valid != (err == nil) || valid && got != s {
			t.Fatalf("%q -> %q -> %q, %v", s, value, got, err)
		}
		// As a received value: one that is accepted has a text, and encoding
		// that text gives a value with the same text.
		if text, err := DecodeHeader(s); err == nil {
			if again, err := DecodeHeader(EncodeHeader(text)); err != nil || again != text {
				t.Fatalf("%q means %q, then %q, %v", s, text, again, err)
			}
		}
	})
}
