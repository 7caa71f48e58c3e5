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

// book is the messaging package in this process, as the daemon calls it after the policy decision.
// It writes no audit log, so it makes the same data durable as the bare loop.
type book struct {
	db      *store.DB
	mail    *mail.Book
	senders []mail.Owner
	boxes   []mail.Owner
	to      []mail.Recipient
	receipt []*mail.Receipt // last receipt of each mailbox
}

const benchNode = "bench"

// plentyOfMail are limits that no measurement reaches: rates and sizes of mailboxes are not
// measured here.
var plentyOfMail = mail.Limits{MailboxMessages: 1 << 30, MailboxBytes: 1 << 50, SenderMessages: 1 << 30, Namespace: 1 << 20, Duplicate: -1}

// openBook opens the book in dir as the daemon does when it starts.
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

// owner returns a caller with its own session.
func owner(name string) mail.Owner {
	return mail.Owner{Principal: mail.Qualify(benchNode, "uid:1000"), Session: "s:" + name, Node: benchNode, Grade: "attested"}
}

// register registers a name for its owner.
func (b *book) register(name string) (mail.Owner, mail.Peer, error) {
	o := owner(name)
	got, err := b.mail.Register(context.Background(), o, mail.Registration{Name: name, Namespace: "bench"}, nil, said)
	if err != nil {
		return o, mail.Peer{}, fmt.Errorf("registering %s: %w", name, err)
	}
	return o, got.Peer, nil
}

// people registers senders and mailboxes.
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

// send sends one message of a worker.
func (b *book) send(worker, box int, n int64) error {
	_, err := b.mail.Send(context.Background(), b.senders[worker], b.draft(b.to[box], worker, n), said)
	return err
}

func (b *book) draft(to mail.Recipient, worker int, n int64) mail.Draft {
	return mail.Draft{To: []mail.Recipient{to}, Body: textOf(worker, n), Kind: "inform"}
}

// fetch fetches the next batch of a mailbox and acknowledges the previous one. It returns the
// number of messages.
func (b *book) fetch(box int) (int, error) {
	got, err := b.mail.Inbox(context.Background(), b.boxes[box], mail.Fetch{After: b.receipt[box], Max: batchSize, MaxBytes: 128 << 10}, said)
	if err != nil {
		return 0, err
	}
	b.receipt[box] = &got.Counts.Receipt
	return len(got.Messages), nil
}

// The distribution of stored messages, within the product's limits.
const (
	perMailbox = 1000
	perPair    = 100
)

// fill stores n unread messages.
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

// serveBook is the hidden mode that holds a book open. The difference of its memory to that of an
// empty book is the memory for the messages. It sends and reads one message, so that the pages
// needed for it are resident.
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

// said returns a constant audit record. The cost of records is measured elsewhere.
func said[T any](*T) any { return "an act" }
