package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
)

// maxLabel is the length of a name or namespace.
const maxLabel = 63

// Namespace is the label of the project in a directory: its base name, and
// eight hexadecimal digits of the SHA-256 of its real path, so that two
// projects of one name differ and links to one project do not.
func Namespace(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("finding the project's directory: %w", err)
	}
	sum := sha256.Sum256([]byte(dir))
	tail := "-" + hex.EncodeToString(sum[:4])
	return fold(filepath.Base(dir), maxLabel-len(tail)) + tail, nil
}

// fold makes a base name of at most n characters: lower case, and each run of
// what a label may not hold is one hyphen.
func fold(name string, n int) string {
	var out []byte
	for _, c := range []byte(strings.ToLower(name)) {
		switch {
		case labelByte(c) || len(out) > 0 && (c == '.' || c == '_'):
			out = append(out, c)
		case len(out) > 0 && out[len(out)-1] != '-':
			out = append(out, '-')
		}
	}
	name = strings.TrimRight(string(out[:min(len(out), n)]), "-._")
	if name == "" {
		return "project"
	}
	return name
}

func labelByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// ValidNamespace reports whether the daemon takes it: ^[a-z0-9][a-z0-9._-]{0,62}$.
func ValidNamespace(s string) bool {
	return protocol.ValidNamespace(s)
}
