package process

import (
	"errors"
	"os"
)

// ErrOutside is wrapped by the error of OpenFolder for what lies in none of the roots.
var ErrOutside = errors.New("outside of the directories that are allowed")

// OpenFolder is not to be had here: nothing keeps what is started in the directory that was looked at.
func OpenFolder(string, []string) (*os.File, string, error) {
	return nil, "", errors.New("a working directory cannot be held on this system")
}

func isBelow(int, int) bool { return false }
