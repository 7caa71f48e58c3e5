//go:build linux

package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/messaging/mail"
)

// book is the mail itself, in this process: what the daemon calls once a call has passed the gate. There is no
// record behind it, so that what it makes durable is what the bare loop does.
type book struct {
	db      *store.DB
	mail    *mail.Book
	senders []mail.Owner
	boxes   []mail.Owner
	to      []mail.Recipient
	receipt []*mail.Receipt // of each mailbox, the last
}

const benchNode = "bench"

// plentyOfMail are limits that no measurement reaches. How often one may send and how much a mailbox holds is
// not what is measured.
var plentyOfMail = mail.Limits{MailboxMessages: 1 << 30, MailboxBytes: 1 << 50, SenderMessages: 1 << 30, Namespace: 1 << 20, Duplicate: -1}

// openBook opens the book in dir, as the daemon does at its start.
func openBook(dir string, limits mail.Limits) (*book, error) {
	ctx := context.Background()
	db, err := store.Open(ctx, store.Options{Dir: dir, Migrations: daemon.Migrations(), Record: func([]any) error { return nil }})
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	sign := func(fields ...string) string {
		var text strings.Builder
		for _, f := range fields {
			text.WriteString(strconv.Itoa(len(f)) + ":" + f)
		}
		return base64.RawStdEncoding.EncodeToString(ed25519.Sign(key, []byte(text.String())))
	}
	b, err := mail.Open(ctx, db, mail.Options{Node: benchNode, Limits: limits, Sign: sign, Upkeep: said[mail.Upkeep]})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &book{db: db, mail: b}, nil
}

func (b *book) close() error { return b.db.Close() }

// owner is a caller of a session of its own.
func owner(name string) mail.Owner {
	return mail.Owner{Principal: mail.Qualify(benchNode, "uid:1000"), Session: "s:" + name, Node: benchNode, Grade: "attested"}
}

// register binds a name for its owner.
func (b *book) register(name string) (mail.Owner, mail.Peer, error) {
	o := owner(name)
	got, err := b.mail.Register(context.Background(), o, mail.Registration{Name: name, Namespace: "bench"}, nil, said)
	if err != nil {
		return o, mail.Peer{}, fmt.Errorf("registering %s: %w", name, err)
	}
	return o, got.Peer, nil
}

// people registers senders, and mailboxes.
func (b *book) people(senders, boxes int, name string) error {
	for i := range senders {
		from, _, err := b.register(name + "-sends-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		b.senders = append(b.senders, from)
	}
	for i := range boxes {
		box, peer, err := b.register(name + "-reads-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		b.boxes, b.receipt = append(b.boxes, box), append(b.receipt, nil)
		b.to = append(b.to, mail.Recipient{To: peer.Name, PeerID: peer.ID, Principal: peer.Principal, Lineage: mail.LineageSelf, Authority: mail.AuthorityNone})
	}
	return nil
}

// send stores one message of a worker.
func (b *book) send(worker, box int, n int64) error {
	_, err := b.mail.Send(context.Background(), b.senders[worker], b.draft(b.to[box], worker, n), said)
	return err
}

func (b *book) draft(to mail.Recipient, worker int, n int64) mail.Draft {
	return mail.Draft{To: []mail.Recipient{to}, Body: textOf(worker, n), Kind: "inform"}
}

// fetch takes the next batch of a mailbox and acknowledges the one before; it says how many came.
func (b *book) fetch(box int) (int, error) {
	got, err := b.mail.Inbox(context.Background(), b.boxes[box], mail.Fetch{After: b.receipt[box], Max: batchSize, MaxBytes: 128 << 10}, said)
	if err != nil {
		return 0, err
	}
	b.receipt[box] = &got.Counts.Receipt
	return len(got.Messages), nil
}

// Stored messages are spread as limits of the product would have them.
const (
	perMailbox = 1000
	perPair    = 100
)

// fill stores n messages that wait to be read.
func fill(dir string, n int) error {
	b, err := openBook(dir, plentyOfMail)
	if err != nil {
		return err
	}
	boxes := (n + perMailbox - 1) / perMailbox
	if err := b.people(perMailbox/perPair, boxes, "stored"); err != nil {
		return errors.Join(err, b.close())
	}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	var first error
	var once sync.Once
	for range 4 * maxSenders {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == 0; i = next.Add(1) - 1 {
				box, from := int(i)/perMailbox, int(i)%perMailbox/perPair
				draft := b.draft(b.to[box], from, i)
				if _, err := b.mail.Send(context.Background(), b.senders[from], draft, said); err != nil {
					failed.Add(1)
					once.Do(func() { first = fmt.Errorf("filling the store: %w", err) })
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(first, b.close())
}

// serveBook is the hidden mode that holds a book open: what it weighs beside an empty one is what its messages
// weigh. It sends and reads one message, so that the pages that this needs are there.
func serveBook(dir string) error {
	started := time.Now()
	b, err := openBook(dir, mail.Limits{})
	if err != nil {
		return err
	}
	fmt.Printf("listening %d\n", time.Since(started).Nanoseconds())
	if err := errors.Join(b.people(1, 1, "weighed"), b.send(0, 0, started.UnixNano())); err != nil {
		return err
	}
	if _, err := b.fetch(0); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
	return b.close()
}

// said is the record of any act; what a record costs is measured elsewhere.
func said[T any](*T) any { return "an act" }
