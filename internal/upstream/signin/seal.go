package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
)

// keyName is the key's file in the state directory.
const keyName = "signin.key"

// minKey is the least length of a configured key, in bytes.
const minKey = 32

// newSeal makes the cipher from the configured key, or else from the one in the state directory.
func newSeal(dir string, configured secret.Value) (cipher.AEAD, error) {
	raw := []byte(configured.Reveal())
	if len(raw) == 0 {
		var err error
		if raw, err = ownKey(filepath.Join(dir, keyName)); err != nil {
			return nil, err
		}
	} else if len(raw) < minKey {
		return nil, fmt.Errorf("the key for sign-ins is shorter than %d characters", minKey)
	}
	key, err := hkdf.Key(sha256.New, raw, nil, "doorward sign-ins 1", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for sign-ins: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for sign-ins: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// ownKey reads the key of the state directory, or makes it.
func ownKey(path string) ([]byte, error) {
	key, err := durable.Secret(path, 1<<10, func() ([]byte, error) {
		key := make([]byte, minKey)
		rand.Read(key) // never fails
		return key, nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("the key for sign-ins: %w", err)
	case len(key) != minKey:
		return nil, fmt.Errorf("the key for sign-ins %s has %d bytes instead of %d: remove it, and sign in again", path, len(key), minKey)
	}
	return key, nil
}
