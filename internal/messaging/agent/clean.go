package agent

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// errBody: text that is not UTF-8 or holds a NUL is refused, because two
// readers would not see the same in it.
var errBody = errors.New("not UTF-8, or with a NUL")

// Clean is [plaintext.Clean] for text that all readers read alike.
func Clean(s string) (clean string, n int, err error) { return cleaned(s, plaintext.Clean) }

// CleanLine is [plaintext.CleanLine] for text that all readers read alike.
func CleanLine(s string) (clean string, n int, err error) { return cleaned(s, plaintext.CleanLine) }

func cleaned(s string, by func(string) (string, int)) (string, int, error) {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return "", 0, errBody
	}
	clean, n := by(s)
	return clean, n, nil
}
