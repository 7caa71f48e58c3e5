package daemon

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/doorward/doorward/internal/base/durable"
)

// sealKey reads a key of the state directory, or makes it: 32 random bytes. The key outlives
// a restart, so that handles remain valid.
func sealKey(path string) ([]byte, error) {
	key, err := durable.Secret(path, 1<<10, func() ([]byte, error) {
		key := make([]byte, 32)
		rand.Read(key) // never fails
		return key, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the key %w", err)
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("the key %s has %d bytes instead of 32: remove it to get a new one", path, len(key))
	}
	return key, nil
}

// tokenIDKey derives the key for the ids of tokens that Doorward did not make.
func tokenIDKey(seal string) ([]byte, error) {
	key, err := sealKey(seal)
	if err == nil {
		key, err = hkdf.Key(sha256.New, key, nil, "doorward token id", 32)
	}
	if err != nil {
		return nil, fmt.Errorf("deriving the key of token ids: %w", err)
	}
	return key, nil
}
