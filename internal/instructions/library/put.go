package library

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// putTime is how long Put waits for a look at the directory.
const putTime = 2 * time.Second

// Put writes a document into the directory atomically, readable for its owner only. It
// replaces the file that holds the same name for the same audience, or creates one. It
// returns when the file is on disk and, while the library runs, was read. Errors:
// document.Problems, ErrRemote, ErrNowhere.
func (l *Library) Put(ctx context.Context, name string, content []byte, record Recorder) error {
	return filing{l}.put(ctx, name, content, record, func(d *document.Document) (string, error) {
		return held{l}.holder(keyOf(d)), nil
	})
}

// Replace is Put in place of the file that holds a version now, given by 4 digits or
// more, whatever audience the new text has. Further errors: ErrAbsent, ErrAmbiguous.
func (l *Library) Replace(ctx context.Context, name, version string, content []byte, record Recorder) error {
	return filing{l}.put(ctx, name, content, record, func(d *document.Document) (string, error) {
		return held{l}.holding(name, version, keyOf(d))
	})
}

// filing writes documents into the directory.
type filing struct{ l *Library }

func (f filing) put(ctx context.Context, name string, content []byte, record Recorder, place func(*document.Document) (string, error)) error {
	switch {
	case record == nil:
		return store.ErrUnrecorded
	case f.l.remote != nil:
		return ErrRemote
	case f.l.o.Dir == "":
		return ErrNowhere
	}
	d, err := document.Parse(name+suffix, content)
	if err != nil {
		return err
	}
	if d.Name != name {
		return document.Problems{{File: name + suffix, Line: 1, Text: fmt.Sprintf("the document is named %q, not %q", d.Name, name)}}
	}
	if err := f.fresh(ctx); err != nil {
		return err
	}
	file, err := place(d)
	if err != nil {
		return err
	}
	if err := record(&Act{Op: OpPut, Name: name, Version: d.Version}); err != nil {
		return fmt.Errorf("recording %s of %s: %w", OpPut, name, err)
	}
	// A write may block in the file system; the operator's request must not.
	done := make(chan error, 1)
	go func() { done <- f.store(d, file, content) }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("writing into the instruction directory: %w", err)
		}
	case <-ctx.Done():
		return fmt.Errorf("writing into the instruction directory: %w", ctx.Err())
	}
	return f.fresh(ctx)
}

// fresh makes the watcher look at the directory, if it runs. A look that is not over in
// time is no error, because the next one follows.
func (f filing) fresh(ctx context.Context) error {
	if f.l.running.Load() {
		limited, cancel := context.WithTimeout(ctx, putTime)
		defer cancel()
		if err := f.l.Look(limited); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return ctx.Err()
}

// holder returns the file that holds a key, "" when none does.
func (h held) holder(k key) string {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.l.here[k].file
}

// holding returns the file that holds a version now. It fails if another file holds the
// name and audience of the new document.
func (h held) holding(name, version string, next key) (file string, err error) {
	if !isPrefix(version, minPrefix) {
		return "", ErrUnknown
	}
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	for k, p := range h.l.here {
		if k.name == name && p.doc != nil && strings.HasPrefix(p.doc.Version, version) {
			if file != "" {
				return "", ErrAmbiguous
			}
			file = p.file
		}
	}
	if file == "" {
		return "", ErrAbsent
	}
	if other := h.l.here[next].file; other != "" && other != file {
		return "", document.Problems{{File: plaintext.Name(other), Line: 1, Text: fmt.Sprintf("contains %q for that audience already", name)}}
	}
	return file, nil
}

// store writes the file, and marks it as complete for the watcher.
func (f filing) store(d *document.Document, file string, content []byte) error {
	if err := f.makeDir(); err != nil {
		return err
	}
	root, err := openDir(f.l.o.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	temp := durable.Draft + rand.Text()
	if err := durable.Write(root, temp, content); err != nil {
		return err
	}
	if file, err = give(root, temp, file, d); err != nil {
		return errors.Join(err, durable.Forget(root, temp))
	}
	fi, err := root.Lstat(file)
	if err != nil {
		return err
	}
	st, err := stampOf(fi)
	if err != nil {
		return err
	}
	f.l.mu.Lock()
	f.l.whole[file] = st
	f.l.mu.Unlock()
	f.l.dormant.Store(false)
	return durable.Sync(root)
}

// makeDir creates the directory if there is none, and remembers it as its own.
func (f filing) makeDir() error {
	dir := filepath.Clean(f.l.o.Dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	made, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	f.l.mu.Lock()
	f.l.made = made
	f.l.mu.Unlock()
	return nil
}

// putWhole returns the stamp of a file that Put wrote completely. The scanner uses it.
func (f filing) putWhole(name string) (stamp, bool) {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	st, ok := f.l.whole[name]
	return st, ok
}

// give gives the new file its name: that of the file that it replaces, or a free one.
// Other programs may create files at the same time, so a free name is taken by a link,
// which fails if the name exists.
func give(root *os.Root, temp, file string, d *document.Document) (string, error) {
	if file != "" {
		return file, root.Rename(temp, file)
	}
	variant := d.Variant()
	if variant == "" {
		variant = "all"
	}
	for i := range 100 {
		switch file = d.Name + suffix; i {
		case 0:
		case 1:
			file = d.Name + "-" + variant + suffix
		default:
			file = fmt.Sprintf("%s-%s-%d%s", d.Name, variant, i, suffix)
		}
		err := root.Link(temp, file) // fails if the name exists
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = root.Remove(temp)
		} else if _, stat := root.Lstat(file); errors.Is(stat, fs.ErrNotExist) {
			err = root.Rename(temp, file) // a file system without hard links
		}
		return file, err
	}
	return "", fmt.Errorf("there are too many files named like %s%s", d.Name, suffix)
}
