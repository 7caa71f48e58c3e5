package audit

import (
	"errors"
	"os"
)

// LockName is the file that a writer locks on other systems.
const LockName = "lock"

// NoFollow has no effect: Windows has no such flag.
const NoFollow = 0

// errUnsupported is the error of lock: on Windows a log can only be read and verified.
var errUnsupported = errors.New("writing an audit log is not supported on Windows")

func lock(string) (*os.File, error) { return nil, errUnsupported }

func unlock(f *os.File) error { return f.Close() }

func isSpace(error) bool { return false }

func isFileLimit(error) bool { return false }

func datasync(f *os.File) error { return f.Sync() }

// syncDir has nothing to do: directories cannot be synced here.
func syncDir(string) error { return nil }
