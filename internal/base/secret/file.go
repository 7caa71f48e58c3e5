package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// MaxFile is the largest accepted size of a secret file in bytes.
const MaxFile = 64 << 10

// Errors of ReadFile, wrapped with the path.
var (
	ErrNotRegular    = errors.New("it is not a regular file")
	ErrWorldReadable = errors.New("every user of the machine can read or write it; run chmod o= on it")
	ErrTooLarge      = errors.New("it is larger than 64 KiB")
	ErrEmpty         = errors.New("it is empty; write the secret into it")
	ErrNoAnswer      = errors.New("its file system does not answer")
)

func isAbs(path string) bool { return filepath.IsAbs(path) }

// ReadFile reads a secret from the regular file at the absolute path, without its last line
// end. Links are followed, because service managers provide secrets that way; the checks
// are made on the opened file.
func ReadFile(path string) (Value, error) { return (&Reader{Open: os.Open}).ReadFile(path) }

// Reader reads secrets like ReadFile, with a function that opens the files. A file whose file
// system does not answer is asked once, because each question takes a thread.
type Reader struct {
	Open func(path string) (*os.File, error)

	mu   sync.Mutex
	late map[string]<-chan struct{} // by path: closed at the end of the last read that exceeded its time
}

// patience is how long the answer of a file system is waited for.
const patience = 5 * time.Second

// ReadFile reads the secret at the absolute path.
func (r *Reader) ReadFile(path string) (Value, error) {
	if !isAbs(path) {
		return Value{}, ErrPath
	}
	b, err := r.readWithin(patience, path)
	if err != nil {
		// The operating system's errors name the path themselves.
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return Value{}, fmt.Errorf("reading a secret: %w", err)
		}
		return Value{}, fmt.Errorf("reading a secret from %s: %w", path, err)
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	if len(b) == 0 {
		return Value{}, fmt.Errorf("reading a secret from %s: %w", path, ErrEmpty)
	}
	return New(string(b)), nil
}

// readWithin is readRegular with a limit of time. A read that exceeds it ends when the file system
// answers. Until then no other one begins, and what it reads is not used: the file may have changed.
func (r *Reader) readWithin(limit time.Duration, path string) ([]byte, error) {
	end := time.After(limit)
	r.mu.Lock()
	before := r.late[path]
	r.mu.Unlock()
	if before != nil {
		select {
		case <-before:
		case <-end:
			return nil, ErrNoAnswer
		}
	}
	var b []byte
	var err error
	done := make(chan struct{})
	go func() { defer close(done); b, err = readRegular(path, r.Open) }()
	select {
	case <-done:
		return b, err
	case <-end:
		r.exceeded(path, done)
		return nil, ErrNoAnswer
	}
}

func (r *Reader) exceeded(path string, done <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late == nil {
		r.late = make(map[string]<-chan struct{})
	}
	r.late[path] = done
}

// readRegular opens, checks and reads the file. The check before opening avoids blocking on
// a pipe; the check of the open file decides, because that file cannot be replaced.
func readRegular(path string, open func(string) (*os.File, error)) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := judge(f); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(b) > MaxFile {
		err = ErrTooLarge
	}
	return b, err
}

// judge checks the open file. Windows has no mode bits to check.
func judge(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return ErrNotRegular
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o006 != 0:
		return ErrWorldReadable
	case info.Size() > MaxFile:
		return ErrTooLarge
	}
	return nil
}
