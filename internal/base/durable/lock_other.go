//go:build !unix

package durable

import (
	"errors"
	"os"
	"time"
)

// NoFollow has no effect: this system has no such flag.
const NoFollow = 0

// Lock fails: the daemon does not run on this system.
func Lock(string, time.Duration) (*os.File, error) { return nil, errors.ErrUnsupported }

// Unlock closes f.
func Unlock(f *os.File) error { return f.Close() }

// NoSpace reports false.
func NoSpace(error) bool { return false }

// FileFull reports false.
func FileFull(error) bool { return false }

// SyncDir has nothing to do: directories cannot be synced here.
func SyncDir(string) error { return nil }
