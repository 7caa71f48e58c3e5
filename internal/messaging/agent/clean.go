package agent

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// errBody refuses text that is not UTF-8 or holds a NUL, because two readers could read
// it differently.
var errBody = errors.New("not UTF-8, or with a NUL")

// Clean is [plaintext.Clean]; it refuses text that readers could read differently
// (errBody).
func Clean(s string) (clean string, n int, err error) { return cleaned(s, plaintext.Clean) }

// CleanLine is [plaintext.CleanLine]; it refuses text that readers could read differently
// (errBody).
func CleanLine(s string) (clean string, n int, err error) { return cleaned(s, plaintext.CleanLine) }

func cleaned(s string, by func(string) (string, int)) (string, int, error) {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return "", 0, errBody
	}
	clean, n := by(s)
	return clean, n, nil
}
