package protocol

import (
	"crypto/sha256"
	"encoding/hex"
)

// digestSize is the number of bytes of a session's digest.
const digestSize = 8

// SessionDigest returns the name of an MCP session outside of its own requests: a digest of
// its id, which is as sensitive as a credential.
func SessionDigest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:digestSize])
}

// ValidSessionDigest reports whether s has the form of a SessionDigest.
func ValidSessionDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == digestSize && hex.EncodeToString(raw) == s
}
