package library

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// Production is the label of the version that readers get.
const Production = "production"

// dbTime bounds a database operation for which no caller waits.
const dbTime = 10 * time.Second

// key is a name for one audience. Labels are set for a key.
type key struct{ name, variant string }

func keyOf(d *document.Document) key { return key{d.Name, d.Variant()} }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.variant, o.variant))
}

// edition is one version of a name.
type edition struct{ name, version string }

// shelf holds the rows of a key, without contents.
type shelf struct {
	state  string
	seen   string            // the version that the directory held last
	file   string            // the file of seen; empty when that file holds another key now
	labels map[string]string // versions by label
}

// serves returns the version that readers get if the key has a file; "" for none.
func (s *shelf) serves() string {
	if s.state != stateOpen {
		return ""
	}
	return s.labels[Production]
}

// book holds the rows of the database. It is replaced, never changed.
type book map[key]*shelf

// keys returns the keys of the book, sorted.
func (b book) keys() []key { return slices.SortedFunc(maps.Keys(b), key.compare) }

// reading is the book as one transaction reads it, with the sealed contents of labelled
// versions that are not in memory.
type reading struct {
	book   book
	sealed map[edition][]byte
}

// read reads the book. has reports which contents are in memory.
func read(tx *store.Tx, installation string, has func(edition) bool) (reading, error) {
	r := reading{book: make(book), sealed: make(map[edition][]byte)}
	err := tx.Each(func(scan func(...any) error) error {
		var k key
		s := &shelf{labels: make(map[string]string)}
		err := scan(&k.name, &k.variant, &s.state, &s.seen, &s.file)
		r.book[k] = s
		return err
	}, `SELECT name, variant, state, seen, file FROM instruct_variants WHERE installation = ?1`, installation)
	if err != nil {
		return r, fmt.Errorf("reading the names of documents: %w", err)
	}
	err = tx.Each(func(scan func(...any) error) error {
		var k key
		var label, version string
		if err := scan(&k.name, &k.variant, &label, &version); err != nil {
			return err
		}
		if s := r.book[k]; s != nil {
			s.labels[label] = version
		}
		if e := (edition{k.name, version}); !has(e) {
			r.sealed[e] = nil
		}
		return nil
	}, `SELECT name, variant, label, version FROM instruct_labels WHERE installation = ?1`, installation)
	if err != nil {
		return r, fmt.Errorf("reading labels: %w", err)
	}
	for e := range r.sealed {
		if r.sealed[e], err = sealedContent(tx, installation, e); err != nil && !errors.Is(err, store.ErrNoRow) {
			return r, fmt.Errorf("reading a document: %w", err)
		}
	}
	return r, nil
}

func sealedContent(tx *store.Tx, installation string, e edition) (sealed []byte, err error) {
	err = tx.Row([]any{&sealed}, `SELECT content FROM instruct_versions WHERE installation = ?1 AND name = ?2 AND version = ?3`,
		installation, e.name, e.version)
	return sealed, err
}

// short returns the abbreviation of a version for display.
func short(version string) string { return version[:min(len(version), 12)] }
