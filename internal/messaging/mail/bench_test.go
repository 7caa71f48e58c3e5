package mail_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
)

var wide = mail.Limits{MailboxMessages: 1 << 30, MailboxBytes: 1 << 40, SenderMessages: 1 << 30}

// benchBed is a book on SQLite with n registered agents.
func benchBed(b *testing.B, n int) (*mail.Book, *store.DB, []mail.Owner, []mail.Recipient) {
	db, err := store.Open(b.Context(), store.Options{Dir: b.TempDir(), Migrations: append(mail.Migrations(), bare), Record: func([]any) error { return nil }})
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	book, err := mail.Open(b.Context(), db, mail.Options{Node: "here", Limits: wide, Upkeep: said[mail.Upkeep]})
	must(b, err)
	var owners []mail.Owner
	var peers []mail.Recipient
	for i := range n {
		o := owner("uid:1000", fmt.Sprint("s", i))
		got, err := book.Register(b.Context(), o, mail.Registration{Name: fmt.Sprint("a", i)}, nil, said)
		must(b, err)
		owners = append(owners, o)
		peers = append(peers, mail.Recipient{To: got.Peer.Name, PeerID: got.Peer.ID, Principal: got.Peer.Principal})
	}
	return book, db, owners, peers
}

var bare = store.Migration{Name: "bench-1", SQL: []string{
	`CREATE TABLE bench (id TEXT PRIMARY KEY, box INTEGER NOT NULL, body TEXT NOT NULL) STRICT`}}

// BenchmarkSend measures sends of 1 and 16 senders, and for comparison inserts of a bare row with
// the same durability.
func BenchmarkSend(b *testing.B) {
	body := strings.Repeat("x", 1000)
	for _, senders := range []int{1, 16} {
		b.Run(fmt.Sprint("mail-", senders), func(b *testing.B) {
			book, _, owners, peers := benchBed(b, 16)
			b.ResetTimer()
			each(b, senders, func(who, n int) error {
				_, err := book.Send(b.Context(), owners[who], mail.Draft{To: []mail.Recipient{peers[(who+1)%16]}, Body: fmt.Sprint(n, body)}, said)
				return err
			})
		})
		b.Run(fmt.Sprint("bare-", senders), func(b *testing.B) {
			_, db, _, _ := benchBed(b, 1)
			b.ResetTimer()
			each(b, senders, func(who, n int) error {
				return db.Write(b.Context(), func(tx *store.Tx) error {
					_, err := tx.Exec(`INSERT INTO bench (id, box, body) VALUES (?1, ?2, ?3)`, fmt.Sprint(n), who, body)
					return err
				})
			})
		})
	}
}

// each divides b.N acts among the workers.
func each(b *testing.B, workers int, act func(who, n int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for who := range workers {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
				if err := act(who, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkFetchAndAck measures reading and acknowledging in batches of 50.
func BenchmarkFetchAndAck(b *testing.B) {
	book, _, owners, peers := benchBed(b, 2)
	n := 0
	fill := func() {
		for range 1000 {
			n++
			_, err := book.Send(b.Context(), owners[0], mail.Draft{To: peers[1:2], Body: fmt.Sprint("hello", n)}, said)
			must(b, err)
		}
	}
	b.ResetTimer()
	var after *mail.Receipt
	for done := 0; done < b.N; {
		b.StopTimer()
		fill()
		b.StartTimer()
		for {
			got, err := book.Inbox(b.Context(), owners[1], mail.Fetch{After: after, Max: 50, MaxBytes: 128 << 10}, said)
			must(b, err)
			after = &got.Counts.Receipt
			done += got.Acked
			if len(got.Messages) == 0 {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkEmptyInbox measures a poll that finds nothing.
func BenchmarkEmptyInbox(b *testing.B) {
	book, _, owners, _ := benchBed(b, 1)
	b.ResetTimer()
	for range b.N {
		_, err := book.Inbox(b.Context(), owners[0], mail.Fetch{}, said)
		must(b, err)
	}
}
