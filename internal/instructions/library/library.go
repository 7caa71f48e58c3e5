// Package library is the source of the documents of instruction delivery: a watched
// directory, or another Doorward.
//
// It exists because delivery is a decision, not a consequence of a file's state: every
// content that the directory ever held is an immutable version in the database, and a
// label, which an operator moves, selects the version that readers get.
//
// Invariants: a version that Set returns was labelled production, was not revoked, and
// has a file in the directory now. A document in a directory that appeared, or replaced
// another one, since the start does not become production by itself. Labels move in a
// transaction that writes its record first. A revoked version is never delivered again,
// whatever the files hold. Neither a restart nor a file that returns to an earlier
// content moves a label. No content is on disk except in the directory itself and,
// sealed, in the database; the content of another Doorward is kept in memory only. Set
// and State never wait for a disk, a database or the network.
//
// Limits: the seal protects contents against a reader of the database without its key.
// Labels and revocations are ordinary rows: a program that can write the database, or
// replace it by an older copy, can move them among the contents that were there. A file
// that is overwritten in place, with pauses of more than a second (at the start and under
// Look, of more than a fifth of a second), is read half written. A removed directory
// whose inode number is reused for a new one of that name is taken for the same.
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

// Options configure a Library. Without Dir and Remote it is empty and unused.
type Options struct {
	DB           *store.DB // opened with Migrations
	Key          []byte    // 32 bytes: seals the contents in the database
	Installation string    // rows of other installations are ignored
	Dir          string
	Required     bool    // a missing Dir is an outage; otherwise it means that the library is unused
	Remote       *Remote // instead of Dir
	Review       bool    // new contents wait for an operator's promotion
	// Entered makes the record of a document that was added to the directory, and of the
	// label that it took by itself (OpFile). It is required.
	Entered Note
	Log     *slog.Logger
	Now     func() time.Time
	// Changed is called, without a lock held, when the result of Set has changed: the
	// documents, or the state without its time.
	Changed func()
	// Replaced is called when Dir appeared after the start, or was replaced by another
	// directory, before anything in it is read: sandboxes hide the earlier directory, not
	// this one. It returns when the sandboxes are updated. Until the next start, new
	// documents in such a directory wait for a promotion, as under Review, because a
	// contained program may have written them before.
	Replaced func()
}

// Library holds the documents. Its methods are safe for concurrent use.
type Library struct {
	o       Options
	seal    cipher.AEAD
	ledger  *ledger
	remote  *remote
	sees    func(*scanner) sight // look; it may block as long as a file system hangs
	now     atomic.Pointer[snapshot]
	ready   chan struct{}
	asks    chan chan struct{}
	heard   chan struct{} // room for one: the database was changed by another process
	running atomic.Bool
	owes    atomic.Bool // the book has to be read again

	tendEvery time.Duration

	acts sync.Mutex // held from the begin of a write until its result is published

	mu       sync.Mutex // guards the fields below; never held during I/O
	book     book
	docs     map[edition]*document.Document // labelled documents, opened
	damaged  map[edition]string             // labelled versions that cannot be opened, with the reason
	here     map[key]present                // nil: before the first look
	hereDocs map[edition]*document.Document // the documents in here
	seen     map[key]string                 // the versions that this process or an earlier one found last
	whole    map[string]stamp               // files that Put wrote completely
	made     fs.FileInfo                    // the directory that Put created last, if any
	found    found
	far      []*document.Document // documents of the remote
	farState farState

	dormant atomic.Bool // the directory is unused, and not watched
	strange atomic.Bool // the directory was replaced since the start, and not by Put

	watcher   watcher
	publisher publisher
}

// present is what the directory has for a key: a file, and its document unless the file
// cannot be used now.
type present struct {
	file string
	doc  *document.Document
}

// Open reads the book of labels and opens the labelled versions. It reads neither the
// directory nor the network; Run does.
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

// Ready waits until the first look at the directory, or the first attempt at the remote,
// is over, or ctx ends.
func (l *Library) Ready(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first scan of the instructions: %w", ctx.Err())
	}
}

// Set returns the documents that are production now, and the state of the library. It
// never waits. The set is immutable and never nil. When the state is not OK, it is the
// last set, for readers that had it already.
func (l *Library) Set() (*document.Set, State) {
	s := l.now.Load()
	return s.set, s.state
}

// Close writes the pending counts. It is called after Run has returned and before the
// database is closed.
func (l *Library) Close(ctx context.Context) error {
	if err := l.ledger.flush(ctx, l.o.Now()); err != nil {
		return fmt.Errorf("storing deliveries: %w", err)
	}
	return nil
}
