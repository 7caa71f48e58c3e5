package store

import (
	"errors"
	"os"
)

// errUnsupported is the answer to opening SQLite: on Windows there is the client side alone.
var errUnsupported = errors.New("the embedded store is not supported on Windows")

func claim(Options) (string, *os.File, error) { return "", nil, errUnsupported }

func ownFiles(string) error { return errUnsupported }

func unlock(f *os.File) error { return f.Close() }

func syncDir(string) error { return nil }
