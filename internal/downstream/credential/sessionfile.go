// Package credential keeps session tokens in files, for hooks and CI steps that
// run beside the MCP process and need one.
//
// All files are in the directory "sessions" of the runtime directory, never in a
// shared temporary one, and are judged by one rule.
//
// Invariants: a file made by Write is whole, synced, 0600, ours, and has an
// unguessable name, or it does not exist. A file returned by Find is a regular
// file of ours that no other user can read, change or have linked, and has not
// expired. No link is followed, neither to read nor to remove. No error contains
// a token or a part of one.
//
// Limit: another program of the same user can read such a file. The token's short
// life, its binding to a process and its revocation limit the damage. A user who
// may write to the directories above the runtime directory may put another one in
// its place; it would have to belong to us.
package credential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Why a file or a directory is refused, wrapped with its path.
var (
	ErrNone    = errors.New("there is no session file that can be used")
	ErrKind    = errors.New("it is not a regular file")
	ErrOwner   = errors.New("it belongs to another user")
	ErrMode    = errors.New("its mode is not 0600")
	ErrLinks   = errors.New("it has more than one hard link")
	ErrSize    = errors.New("it is larger than a session file")
	ErrForm    = errors.New("it does not hold a session")
	ErrExpired = errors.New("its session has expired")
	ErrBinding = errors.New("its session belongs to another process")
	ErrFolder  = errors.New("it is not a private directory of ours (0700, no link)")
)

const (
	folder  = "sessions"
	suffix  = ".json"
	maxSize = 4 << 10 // bytes; a token has at most 1,024
	maxLook = 4096    // files that are looked at, so that nobody has us read all day
)

// File is a session as it is kept.
type File struct {
	Token     string    `json:"token"`
	SessionID string    `json:"session_id"` // 16 hex
	Bind      string    `json:"bind"`       // process instance, "BOOT/PID@START"; empty: none
	Expires   time.Time `json:"expires"`
}

// valid checks the form: a file has one meaning or none. now is not asked.
func (f File) valid() bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	return f.Token != "" && len(f.Token) <= 1024 && strings.Trim(f.Token, alphabet) == "" &&
		len(f.SessionID) == 16 && strings.Trim(f.SessionID, "0123456789abcdef") == "" &&
		len(f.Bind) <= 128 && strings.IndexFunc(f.Bind, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 &&
		!f.Expires.IsZero()
}

// open opens the directory of session files. It is ours, 0700, and neither it
// nor the runtime directory is a link; when it is missing, the error is
// fs.ErrNotExist.
func open(runtimeDir string) (*os.Root, error) {
	if runtimeDir == "" {
		return nil, fmt.Errorf("there is no runtime directory: %w", fs.ErrNotExist)
	}
	outer := filepath.Clean(runtimeDir) // a trailing slash would follow a link
	above, err := enter(outer, 0o022, os.Lstat, os.OpenRoot, outer)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	return enter(filepath.Join(outer, folder), 0o077, above.Lstat, above.OpenRoot, folder)
}

// enter opens a directory and makes sure that it is the one that was looked at
// without following a link, and that it is ours without the bits in deny. look
// and open take name; path is for errors.
func enter(path string, deny fs.FileMode, look func(string) (fs.FileInfo, error), open func(string) (*os.Root, error), name string) (*os.Root, error) {
	seen, err := look(name)
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	if !seen.IsDir() {
		return nil, fmt.Errorf("%s: %w", path, ErrFolder)
	}
	dir, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	is, err := dir.Stat(".")
	if err == nil && (!os.SameFile(is, seen) || !own(is) || is.Mode().Perm()&deny != 0) {
		err = fmt.Errorf("%s: %w", path, ErrFolder)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// own reports whether a file is ours.
func own(fi fs.FileInfo) bool {
	uid, _, ok := peer.Owner(fi)
	return ok && uid == uint32(os.Geteuid())
}

// judge is what must hold of a file before it is believed.
func judge(fi fs.FileInfo) error {
	links, ok := linksOf(fi)
	switch {
	case !fi.Mode().IsRegular():
		return ErrKind
	case !ok || !own(fi):
		return ErrOwner
	case fi.Mode()&^fs.ModeType != 0o600:
		return ErrMode
	case links == 0:
		return fs.ErrNotExist // removed since it was opened
	case links > 1:
		return ErrLinks
	case fi.Size() > maxSize:
		return ErrSize
	}
	return nil
}

// read opens a file of dir and gives what it holds once check has nothing
// against it. A Root follows links that stay within it, so the file is compared
// with what stands under the name; and it does not wait for the other end of a
// pipe that was put there in between.
func read(dir *os.Root, name string, check func(fs.FileInfo) error) (File, error) {
	seen, err := dir.Lstat(name)
	if err != nil {
		return File{}, err
	}
	if err := check(seen); err != nil {
		return File{}, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	is, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	if !os.SameFile(is, seen) {
		return File{}, ErrKind
	}
	if err := check(is); err != nil {
		return File{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return File{}, err
	}
	return parse(b)
}

// parse reads what Write wrote, in its one spelling. The decoder's own words
// quote what it read, so they are not passed on.
func parse(b []byte) (File, error) {
	var f File
	if len(b) > maxSize {
		return f, ErrSize
	}
	if err := json.Unmarshal(b, &f); err != nil || !f.valid() {
		return File{}, ErrForm
	}
	if again, err := encode(f); err != nil || !bytes.Equal(again, b) {
		return File{}, ErrForm
	}
	return f, nil
}

func encode(f File) ([]byte, error) {
	b, err := json.Marshal(f)
	return append(b, '\n'), err
}
