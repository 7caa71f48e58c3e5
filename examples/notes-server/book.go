package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits, so that a caller in a loop fills no disk.
const (
	maxNotes = 1000
	maxTitle = 200   // bytes
	maxText  = 16384 // bytes
)

// note is one note. Its id is random, so that processes that share a file need not agree on a number.
type note struct {
	ID    string    `json:"id" jsonschema:"what delete_note takes"`
	Title string    `json:"title"`
	Text  string    `json:"text"`
	Added time.Time `json:"added" jsonschema:"when it was added, UTC"`
}

// change is one line of the file.
type change struct {
	Add    *note  `json:"add,omitempty"`
	Delete string `json:"delete,omitempty"`
}

// book holds notes in memory, or in the file at path when it is not empty. A file is only ever appended to, a line at
// a time, and read anew for each question: that is what lets several processes share it without a lock.
type book struct {
	path string

	mu      sync.Mutex
	changes []change // without a path
}

// errUnknown is the answer to an id that is not there, or no longer.
var errUnknown = errors.New("there is no note with this id")

// list gives all notes, oldest first.
func (b *book) list() ([]note, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read()
}

// add keeps a new note.
func (b *book) add(title, text string) (note, error) {
	title = strings.Join(strings.Fields(title), " ")
	switch {
	case title == "":
		return note{}, errors.New("a note needs a title")
	case len(title) > maxTitle || len(text) > maxText:
		return note{}, fmt.Errorf("a title has at most %d bytes and a text %d", maxTitle, maxText)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	notes, err := b.read()
	if err != nil {
		return note{}, err
	}
	if len(notes) >= maxNotes {
		return note{}, fmt.Errorf("there are %d notes already; delete some first", len(notes))
	}
	n := note{ID: strings.ToLower(rand.Text()[:10]), Title: title, Text: text, Added: time.Now().UTC().Truncate(time.Second)}
	return n, b.write(change{Add: &n})
}

// remove deletes a note and gives what it was.
func (b *book) remove(id string) (note, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	notes, err := b.read()
	if err != nil {
		return note{}, err
	}
	i := slices.IndexFunc(notes, func(n note) bool { return n.ID == id })
	if i < 0 {
		return note{}, errUnknown
	}
	return notes[i], b.write(change{Delete: id})
}

// find gives one note.
func (b *book) find(id string) (note, error) {
	notes, err := b.list()
	if err != nil {
		return note{}, err
	}
	if i := slices.IndexFunc(notes, func(n note) bool { return n.ID == id }); i >= 0 {
		return notes[i], nil
	}
	return note{}, errUnknown
}

// search gives the notes that have all the words, in title or text, whatever their case.
func (b *book) search(query string) ([]note, error) {
	notes, err := b.list()
	words := strings.Fields(strings.ToLower(query))
	return slices.DeleteFunc(notes, func(n note) bool {
		all := strings.ToLower(n.Title + "\n" + n.Text)
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
	}), err
}

// read replays the changes.
func (b *book) read() ([]note, error) {
	changes := b.changes
	if b.path != "" {
		var err error
		if changes, err = readChanges(b.path); err != nil {
			return nil, fmt.Errorf("reading the notes: %w", err)
		}
	}
	notes := []note{}
	for _, c := range changes {
		if c.Add != nil {
			notes = append(notes, *c.Add)
		}
		if c.Delete != "" {
			notes = slices.DeleteFunc(notes, func(n note) bool { return n.ID == c.Delete })
		}
	}
	return notes, nil
}

// readChanges reads the file. A last line without an end is another process's that is not finished yet.
func readChanges(path string) ([]change, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var changes []change
	for number, line := range bytes.SplitAfter(content, []byte("\n")) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// write keeps a change.
func (b *book) write(c change) error {
	if b.path == "" {
		b.changes = append(b.changes, c)
		return nil
	}
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("writing the notes: %w", err)
	}
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing the notes: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the notes: %w", err)
	}
	return nil
}
