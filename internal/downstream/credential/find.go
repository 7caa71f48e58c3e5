package credential

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Find returns the newest usable session whose binding mine accepts (nil: every
// binding). refused is called for each newer file that was skipped, with its path
// and one of the errors of this package. It returns ErrNone when no file is left,
// and another error when the directory itself is refused.
func Find(runtimeDir string, mine func(bind string) bool) (found File, refused []error, err error) {
	dir, err := open(runtimeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil, ErrNone
	}
	if err != nil {
		return File{}, nil, fmt.Errorf("looking for a session file: %w", err)
	}
	defer dir.Close()
	files, err := list(dir)
	if err != nil {
		return File{}, nil, fmt.Errorf("looking for a session file: %w", err)
	}
	now := time.Now()
	for _, fi := range files {
		if strings.HasSuffix(fi.Name(), unfinished) {
			continue
		}
		f, err := read(dir, fi.Name(), judge)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // removed since
		case err == nil && !now.Before(f.Expires):
			err = ErrExpired
		case err == nil && mine != nil && !mine(f.Bind):
			err = ErrBinding
		}
		if err == nil {
			return f, refused, nil
		}
		refused = append(refused, fmt.Errorf("%s: %w", filepath.Join(dir.Name(), fi.Name()), err))
	}
	return File{}, refused, ErrNone
}

// list returns everything in the directory, the newest first, without following links.
// Beyond maxLook entries, some are left out.
func list(dir *os.Root) ([]fs.FileInfo, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxLook)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	files := make([]fs.FileInfo, 0, len(names))
	for _, name := range names {
		if fi, err := dir.Lstat(name); err == nil { // else it was removed since
			files = append(files, fi)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		if c := b.ModTime().Compare(a.ModTime()); c != 0 {
			return c
		}
		return strings.Compare(b.Name(), a.Name())
	})
	return files, nil
}
