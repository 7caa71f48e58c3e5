package process

import (
	"errors"
	"os"
)

// ErrOutside is wrapped by the error of OpenFolder for a path in none of the roots.
var ErrOutside = errors.New("outside of the directories that are allowed")

// OpenFolder is not available on this system: a process cannot be started in the directory that was checked.
func OpenFolder(string, []string) (*os.File, string, error) {
	return nil, "", errors.New("a working directory cannot be kept open on this system")
}

func isBelow(int, int) bool { return false }
