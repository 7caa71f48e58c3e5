package credential

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// unfinished is the suffix of a file that is being written. Readers skip it.
const unfinished = ".new"

// Write stores f in a new file and returns its path. It makes the runtime directory and
// its subdirectory when they are missing (0700). It fails if one of them is a link,
// belongs to another user, or is open to others. On an error no file is left.
//
// The file gets its name, with 128 random bits, when it is complete. No file is
// replaced.
func Write(runtimeDir string, f File) (path string, err error) {
	if !f.valid() {
		return "", fmt.Errorf("writing a session file: %w", ErrForm)
	}
	dir, err := prepare(runtimeDir)
	if err != nil {
		return "", fmt.Errorf("writing a session file: %w", err)
	}
	defer dir.Close()
	b, err := encode(f)
	if err != nil {
		return "", fmt.Errorf("writing a session file: %w", err)
	}
	name := strings.ToLower(rand.Text())
	if err := put(dir, name, b); err != nil {
		return "", fmt.Errorf("writing a session file: %w", err)
	}
	return filepath.Join(dir.Name(), name+suffix), nil
}

// prepare opens the directory and makes it when it is missing.
func prepare(runtimeDir string) (*os.Root, error) {
	if runtimeDir == "" {
		return nil, errors.New("there is no runtime directory")
	}
	outer, err := peer.PrivateDir(runtimeDir)
	if err != nil {
		return nil, err
	}
	defer outer.Close()
	err = os.Mkdir(filepath.Join(outer.Name(), folder), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return open(runtimeDir) // checks the directory, however it was made
}

// put writes, syncs and names a file, or leaves nothing.
func put(dir *os.Root, name string, b []byte) error {
	draft := name + unfinished
	if err := durable.Write(dir, draft, b); err != nil {
		return err
	}
	if err := settle(dir, draft, name+suffix); err != nil {
		return errors.Join(err, durable.Forget(dir, draft))
	}
	if err := durable.Sync(dir); err != nil {
		return errors.Join(err, durable.Forget(dir, name+suffix))
	}
	return nil
}

// settle gives the file its name, which must be free. It renames instead of
// linking: a process killed between link and unlink would leave a file with two
// names, which readers refuse. A name of 128 random bits does not collide.
func settle(dir *os.Root, draft, name string) error {
	if _, err := dir.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fs.ErrExist, err)
	}
	return dir.Rename(draft, name)
}

const (
	// abandoned is the age at which an unfinished file belongs to a killed writer.
	abandoned = time.Minute
	// outlived is the age at which no token of a file can be valid: no token lives
	// longer than a day.
	outlived = 25 * time.Hour
)

// Remove removes the files of a session. It is not an error if there are none.
func Remove(runtimeDir, sessionID string) error {
	_, err := sweep(runtimeDir, func(_ fs.FileInfo, f File, err error) bool { return err == nil && f.SessionID == sessionID })
	if err != nil {
		return fmt.Errorf("removing a session file: %w", err)
	}
	return nil
}

// Sweep removes the files of sessions that have expired or ended (nil: unknown),
// unfinished files of killed writers, and any file too old to hold a valid token.
// Anything but a regular file of this user is left in place. A missing directory is not
// an error.
// error.
func Sweep(runtimeDir string, ended func(id string) bool) (removed int, err error) {
	now := time.Now()
	removed, err = sweep(runtimeDir, func(fi fs.FileInfo, f File, err error) bool {
		age := now.Sub(fi.ModTime())
		switch {
		case age > outlived, age > abandoned && strings.HasSuffix(fi.Name(), unfinished):
			return true
		case err != nil:
			return false
		}
		return !now.Before(f.Expires) || ended != nil && ended(f.SessionID)
	})
	if err != nil {
		return removed, fmt.Errorf("sweeping the session files: %w", err)
	}
	return removed, nil
}

// sweep removes the regular files of this user that over selects. over is given the
// file's content, or the error of reading it. Mode and links are not checked, because
// only a name is removed.
func sweep(runtimeDir string, over func(fs.FileInfo, File, error) bool) (removed int, err error) {
	dir, err := open(runtimeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	files, err := list(dir)
	for _, fi := range files {
		f, wrong := File{}, error(ErrForm)
		if strings.HasSuffix(fi.Name(), suffix) {
			f, wrong = read(dir, fi.Name(), regular)
		}
		if regular(fi) != nil || !over(fi, f, wrong) {
			continue
		}
		if failed := durable.Forget(dir, fi.Name()); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed++
	}
	return removed, err
}

func regular(fi fs.FileInfo) error {
	switch {
	case !fi.Mode().IsRegular():
		return ErrKind
	case !own(fi):
		return ErrOwner
	}
	return nil
}
