package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

func newSealKey(path string) ([]byte, error) {
	key := make([]byte, 32)
	rand.Read(key)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the sealing key: %w", err)
	}
	_, err = f.Write(key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("writing the sealing key: %w", err)
	}
	return key, nil
}
