package library

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// key is a name for one audience: what labels are given to.
type key struct{ name, variant string }

func keyOf(d *document.Document) key { return key{d.Name, d.Variant()} }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.variant, o.variant))
}

// edition is one version of a name.
type edition struct{ name, version string }

// shelf is what the database says of a key, contents aside.
type shelf struct {
	state  string
	seen   string            // the version that the directory held last
	file   string            // where; empty when that file holds another key now
	labels map[string]string // versions by label
}

// serves is the version that readers get, where there is a file; "" for none.
func (s *shelf) serves() string {
	if s.state != stateOpen {
		return ""
	}
	return s.labels[Production]
}

// book is what the database says. It is replaced, never changed.
type book map[key]*shelf

// keys are the book's, in order.
func (b book) keys() []key { return slices.SortedFunc(maps.Keys(b), key.compare) }

// reading is the book as one transaction sees it, with the sealed contents of
// what bears a label and is not in memory.
type reading struct {
	book   book
	sealed map[edition][]byte
}

// read reads the book. has says what is in memory.
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

// reread reads the book and takes it over.
func (l *Library) reread(ctx context.Context) error {
	l.acts.Lock()
	var r reading
	err := l.o.DB.Read(ctx, func(tx *store.Tx) (err error) {
		r, err = read(tx, l.o.Installation, held{l}.has)
		return err
	})
	changed := err == nil && l.adopt(r, func() {})
	l.acts.Unlock()
	l.publisher.tell(changed)
	return err
}

// page is a transaction of the library.
type page struct {
	*store.Tx
	l    *Library
	acts map[string]int64 // the number of this act, by name
}

// write runs job in a transaction, and publishes what the book says after it,
// together with what then changes under mu. The book is read inside: an act has
// taken effect here when it is committed, however the database fares
// afterwards.
func (l *Library) write(ctx context.Context, job func(*page) error, then func()) error {
	l.acts.Lock()
	var r reading
	err := l.o.DB.Act(ctx, func(tx *store.Tx) error {
		if err := job(&page{Tx: tx, l: l, acts: make(map[string]int64)}); err != nil {
			return err
		}
		tx.Signal(topicLabels)
		var err error
		r, err = read(tx, l.o.Installation, held{l}.has)
		return err
	})
	if errors.Is(err, store.ErrUncertain) {
		l.owes.Store(true)
	}
	changed := err == nil && l.adopt(r, then)
	l.acts.Unlock()
	l.publisher.tell(changed)
	return err
}

// has reports whether a document is in memory.
func (h held) has(e edition) bool { return h.document(e) != nil }

// document is one that is in memory, or nil.
func (h held) document(e edition) *document.Document {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.inMemory(e)
}

// inMemory is document for who holds mu.
func (h held) inMemory(e edition) *document.Document {
	return cmp.Or(h.l.docs[e], h.l.hereDocs[e])
}

// adopt takes over what a transaction read, opens what is new in it, and
// publishes. It reports whether what readers get became another. The caller
// holds acts.
func (l *Library) adopt(r reading, then func()) (changed bool) {
	docs, damaged := make(map[edition]*document.Document), make(map[edition]string)
	for e, sealed := range r.sealed {
		_, d, err := l.open(e, sealed)
		if err != nil {
			damaged[e] = err.Error()
		} else {
			docs[e] = d
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, s := range r.book {
		for _, version := range s.labels {
			e := edition{k.name, version}
			if d := (held{l}).inMemory(e); d != nil && docs[e] == nil {
				docs[e] = d
			}
		}
	}
	l.book, l.docs, l.damaged = r.book, docs, damaged
	then()
	return l.publisher.publish()
}

// aad is what a content is sealed to: each part with its length, so that no two
// read alike.
func (l *Library) aad(e edition) (b []byte) {
	for _, part := range []string{"doorward library 1", l.o.Installation, e.name, e.version} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// open opens a sealed content and parses it. It must be the version that the
// row says.
func (l *Library) open(e edition, sealed []byte) (content []byte, d *document.Document, err error) {
	content, err = l.seal.Open(nil, nil, sealed, l.aad(e))
	if err != nil {
		return nil, nil, errors.New("was sealed with another key, or is damaged")
	}
	d, err = document.Parse(e.name+"@"+short(e.version), content)
	if err != nil {
		return nil, nil, fmt.Errorf("is not valid any more: %w", err)
	}
	if d.Name != e.name || d.Version != e.version {
		return nil, nil, errors.New("is not what its row says")
	}
	return content, d, nil
}

// short is as much of a version as an operator reads.
func short(version string) string { return version[:min(len(version), 12)] }
