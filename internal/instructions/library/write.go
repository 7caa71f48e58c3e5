package library

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// reread reads the book and adopts it.
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

// write runs job in a transaction, and publishes the book after it, together with the
// changes that then makes under mu. The book is read inside of the transaction: so a
// committed act takes effect here even if the database is unavailable afterwards.
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

// adopt takes over a reading, opens its new contents, and publishes. It reports whether
// what readers get has changed. The caller holds acts.
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

// aad returns the additional data of a seal: each part is preceded by its length, so that
// no two lists have the same encoding.
func (l *Library) aad(e edition) (b []byte) {
	for _, part := range []string{"doorward library 1", l.o.Installation, e.name, e.version} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// open opens a sealed content and parses it. It fails if the content is not the version
// of its row.
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
		return nil, nil, errors.New("does not match its row")
	}
	return content, d, nil
}
