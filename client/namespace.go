package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
)

// maxLabel is the greatest length of a label.
const maxLabel = 63

// Namespace returns the label of the project in a directory: its base name, and
// eight hexadecimal digits of the SHA-256 of its real path. Two projects with the same name
// get different labels, and links to one project the same.
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

// fold returns name in lower case, with each run of characters that a label cannot have
// replaced by one hyphen, in at most n characters.
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

// ValidNamespace reports whether s is a valid label: ^[a-z0-9][a-z0-9._-]{0,62}$.
func ValidNamespace(s string) bool {
	return protocol.ValidNamespace(s)
}
