// Package library is the source of the documents of instruction delivery: a
// watched directory, or another Doorward.
//
// Delivery is a decision, not a consequence of a file's state: every content that
// the directory ever held is an immutable version in the database, and a label,
// which an operator moves, selects the version that readers get.
//
// Invariants: a version that Set returns was labelled production, was not
// revoked, and has a file in the directory now. A document in a directory that
// appeared, or replaced another one, since the start does not become production
// by itself. Labels move in a transaction that writes its record first. A revoked
// version is never delivered again, whatever the files say. Neither a restart nor
// a file that returns to an earlier content moves a label. No content is on disk
// except in the directory itself and, sealed, in the database; the content of
// another Doorward is kept in memory only. Set and State never wait for a disk, a
// database or the network.
//
// Limits: the seal protects contents against a reader of the database without its
// key. Labels and revocations are ordinary rows: a program that can write the
// database, or replace it by an older copy, can move them among contents that
// were there. A file that is overwritten in place, with pauses of more than a
// second (at the start and under Look, of more than a fifth of one), is read half
// written. A removed directory whose inode number is reused for a new one of that
// name is taken for the same.
package library

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
)

// Options say where documents come from. With neither Dir nor Remote the
// library is empty and unused.
type Options struct {
	DB           *store.DB // opened with Migrations
	Key          []byte    // 32 bytes: seals the contents in the database
	Installation string    // rows of another one are not looked at
	Dir          string
	Required     bool    // a missing Dir is an outage; otherwise it means that nobody uses this
	Remote       *Remote // instead of Dir
	Review       bool    // new contents wait for an operator's promote
	// Entered makes the record of a document that came into the directory, and of
	// the label that it took by itself (OpFile). It is required.
	Entered Note
	Log     *slog.Logger
	Now     func() time.Time
	// Changed is called, under no lock, when what Set gives became another:
	// the documents, or the state but for its time.
	Changed func()
	// Replaced is called when Dir appeared after the start, or another directory
	// has taken its place, before anything in it is read: sandboxes hide the
	// earlier directory, not this one. It returns when they were updated. New
	// documents in such a directory wait for a promote, as under Review, until the
	// next start, because a contained program may have written them before.
	Replaced func()
}

// Library is what can be read. Its methods may be called at once.
type Library struct {
	o       Options
	seal    cipher.AEAD
	ledger  *ledger
	remote  *remote
	sees    func(*scanner) sight // at the directory, which may take as long as a file system hangs
	now     atomic.Pointer[snapshot]
	ready   chan struct{}
	asks    chan chan struct{}
	heard   chan struct{} // one: the database was changed by somebody
	running atomic.Bool
	owes    atomic.Bool // the book has to be read again

	tendEvery time.Duration

	acts sync.Mutex // held from the begin of a write until its effect is published

	mu       sync.Mutex // of what follows; never held over I/O
	book     book
	docs     map[edition]*document.Document // what bears a label, opened
	damaged  map[edition]string             // what bears a label and cannot be opened, and why
	here     map[key]present                // nil: the directory was not looked at yet
	hereDocs map[edition]*document.Document // the documents in here
	seen     map[key]string                 // the version that this process, or one before, found there last
	whole    map[string]stamp               // files that were put there complete
	made     fs.FileInfo                    // the directory that Put made last, if it did
	found    found
	far      []*document.Document // of the remote
	farState farState

	dormant atomic.Bool // the directory is nobody's, and not looked at
	strange atomic.Bool // it is another one than at the start, and not of our making

	watcher   watcher
	publisher publisher
}

// present is what the directory has for a key: a file, and its document unless
// it cannot be used now.
type present struct {
	file string
	doc  *document.Document
}

// Open reads the book of labels and opens the labelled versions. It does not
// touch the directory or the network; Run does.
func Open(ctx context.Context, o Options) (*Library, error) {
	if o.Entered == nil {
		return nil, errors.New("opening the library: a recorder is needed")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Replaced == nil {
		o.Replaced = func() {}
	}
	seal, err := newSeal(o.Key)
	if err != nil {
		return nil, err
	}
	l := &Library{o: o, seal: seal, ready: make(chan struct{}), asks: make(chan chan struct{}), heard: make(chan struct{}, 1),
		seen: make(map[key]string), whole: make(map[string]stamp), sees: (*scanner).look, tendEvery: tendEvery}
	l.watcher.l, l.publisher.l = l, l
	l.ledger = newLedger(o.DB, o.Installation, maxPending, rowsKept)
	if o.Remote != nil {
		if l.remote, err = newRemote(*o.Remote); err != nil {
			return nil, fmt.Errorf("the remote library: %w", err)
		}
	} else if err := l.reread(ctx); err != nil {
		return nil, fmt.Errorf("opening the library: %w", err)
	}
	for k, s := range l.book {
		l.seen[k] = s.seen
	}
	l.mu.Lock()
	l.publisher.publish()
	l.mu.Unlock()
	return l, nil
}

func newSeal(key []byte) (cipher.AEAD, error) {
	if len(key) != 32 {
		return nil, errors.New("the key of the library must have 32 bytes")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the library: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Ready waits until the first look at the directory, or the first attempt at
// the remote, is over, at most until ctx ends.
func (l *Library) Ready(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first look at the instructions: %w", ctx.Err())
	}
}

// Set returns the documents that are production now, and how the library is. It
// never waits. The set is immutable and never nil; when the state is not OK it
// is the last one, for those who had it already.
func (l *Library) Set() (*document.Set, State) {
	s := l.now.Load()
	return s.set, s.state
}

// Close writes the counts that wait. It belongs after the end of Run and before
// the database is closed.
func (l *Library) Close(ctx context.Context) error {
	if err := l.ledger.flush(ctx, l.o.Now()); err != nil {
		return fmt.Errorf("writing down deliveries: %w", err)
	}
	return nil
}
