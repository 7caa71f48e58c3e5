package daemon

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/durable"
)

// sealKey reads the key that seals handles, or makes it: 32 random bytes in a
// file that its owner alone can read. It outlives a restart, so that a handle
// given out before it still opens.
func sealKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newSealKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sealing key: %w", err)
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("sealing key %s has %d bytes instead of 32: remove it to get a new one", path, len(key))
	}
	return key, nil
}

// newSealKey makes the key. Who has the record open is alone in the state
// directory.
func newSealKey(path string) ([]byte, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("making the sealing key: %w", err)
	}
	defer dir.Close()
	key, name := make([]byte, 32), filepath.Base(path)
	rand.Read(key)
	if err := durable.Replace(dir, name+".new", name, key); err != nil {
		return nil, fmt.Errorf("writing the sealing key: %w", err)
	}
	return key, nil
}

// tokenIDKey is the key of the ids of tokens that were not made by us.
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
