package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile is the largest size of a configuration file in bytes.
const maxFile = 1 << 20

var errNoFile = errors.New("there is no such file")

// errEmpty refuses a file without a byte, or with white space alone: it is what a failed write leaves, for instance
// on a full disk or of an unset variable, and without its rules more would be allowed.
var errEmpty = errors.New("the file is empty, as after a failed write; a comment alone stands for no settings and no rules")

// readFile reads the configuration after checking who can write it: the file contains commands, so any user
// who can write it can run programs as the daemon's user. Links are followed and the opened file is
// checked. The directory is not checked: a file that another user puts there is refused because of its
// owner.
func readFile(path string, open func(string) (*os.File, error)) ([]byte, error) {
	if open == nil {
		open = os.Open
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFile
	} else if err != nil {
		return nil, fmt.Errorf("opening the file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("examining the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if err := judgeOwner(info); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the file: %w", err)
	}
	if len(bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\ufeff")))) == 0 {
		return nil, errEmpty
	}
	return b, nil
}
