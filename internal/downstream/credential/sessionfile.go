// Package credential keeps session tokens in files, for hooks and CI steps that run
// beside the MCP process and need one.
//
// All files are in the directory "sessions" of the runtime directory, never in a shared
// temporary directory, and one set of checks applies to all of them.
//
// Invariants: a file made by Write is complete, synced, has mode 0600, belongs to this
// user and has an unguessable name, or it does not exist. A file returned by Find is a
// regular file of this user that no other user can read, change or have linked, and has
// not expired. No link is followed, neither to read nor to remove. No error contains a
// token or a part of one.
//
// Limit: another program of the same user can read such a file. The token's short life,
// its binding to a process and its revocation limit the damage. A user who can write to
// the directories above the runtime directory can replace it, but only by another
// directory that belongs to this user.
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

// The reasons for refusing a file or a directory, wrapped with its path.
var (
	ErrNone    = errors.New("there is no session file that can be used")
	ErrKind    = errors.New("it is not a regular file")
	ErrOwner   = errors.New("it belongs to another user")
	ErrMode    = errors.New("its mode is not 0600")
	ErrLinks   = errors.New("it has more than one hard link")
	ErrSize    = errors.New("it is too large for a session file")
	ErrForm    = errors.New("it does not hold a session")
	ErrExpired = errors.New("its session has expired")
	ErrBinding = errors.New("its session belongs to another process")
	ErrFolder  = errors.New("it is not a private directory of the current user (mode 0700, no link)")
)

const (
	folder  = "sessions"
	suffix  = ".json"
	maxSize = 4 << 10 // bytes; a token has at most 1,024
	maxLook = 4096    // files that are read, so that a full directory costs bounded work
)

// File is the content of a session file.
type File struct {
	Token     string    `json:"token"`
	SessionID string    `json:"session_id"` // 16 hex
	Bind      string    `json:"bind"`       // process instance, "BOOT/PID@START"; empty: none
	Expires   time.Time `json:"expires"`
}

// valid reports whether the fields are well-formed. It does not check the expiry.
func (f File) valid() bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	return f.Token != "" && len(f.Token) <= 1024 && strings.Trim(f.Token, alphabet) == "" &&
		len(f.SessionID) == 16 && strings.Trim(f.SessionID, "0123456789abcdef") == "" &&
		len(f.Bind) <= 128 && strings.IndexFunc(f.Bind, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 &&
		!f.Expires.IsZero()
}

// open opens the directory of session files. It must belong to this user with mode 0700,
// and neither it nor the runtime directory may be a link. The error for a missing
// directory is fs.ErrNotExist.
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

// enter opens a directory and checks that it is the one that look returned without
// following a link, that it belongs to this user, and that its mode has no bit of deny.
// look and open take name; path is for errors.
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

// own reports whether a file belongs to this user.
func own(fi fs.FileInfo) bool {
	uid, _, ok := peer.Owner(fi)
	return ok && uid == uint32(os.Geteuid())
}

// judge returns the reason why a file must not be used; nil: none.
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

// read returns the content of a file of dir if check accepts it. A Root follows links
// that stay within it, so the opened file is compared with the entry of that name. The
// open does not block if a pipe has replaced the file.
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

// parse decodes a file and accepts only the exact encoding that Write produces. The
// decoder's errors quote the input, so they are not returned.
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
