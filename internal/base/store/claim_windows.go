package store

import (
	"errors"
	"os"
)

// errUnsupported is the error of opening SQLite: on Windows there is no daemon.
var errUnsupported = errors.New("the embedded store is not supported on Windows")

func claim(Options) (string, *os.File, error) { return "", nil, errUnsupported }

func ownFiles(string) error { return errUnsupported }
