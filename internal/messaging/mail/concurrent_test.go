package mail_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// A send that races a takeover commits in the old epoch, in front of all messages of the new
// session, or is refused as FENCED.
func TestASendThatRacesATakeover(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{SenderMessages: 100000, MailboxMessages: 100000}}, func(t *testing.T, b *bed) {
		tester := b.join("tester")
		all := books(t, b)
		o := owner("uid:1000", "s0")
		b.joinAs(o, mail.Registration{Name: "planner"})
		for round := 1; round <= 10; round++ {
			var wg sync.WaitGroup
			var sent, fenced atomic.Int64
			before := o
			for i := range 4 {
				wg.Go(func() {
					for n := 0; ; n++ {
						_, err := all[i%len(all)].Send(t.Context(), before, mail.Draft{Body: fmt.Sprint(round, " ", i, " ", n), To: []mail.Recipient{tester.to()}}, said)
						if code(err) == mail.Fenced {
							fenced.Add(1)
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						sent.Add(1)
					}
				})
			}
			next := owner("uid:1000", fmt.Sprint("s", round))
			_, err := all[round%len(all)].Register(t.Context(), next, mail.Registration{Name: "planner"}, []string{o.Session}, said)
			if len(all) > 1 && round%2 == 1 { // the other node must not end this one's sessions
				refused(t, err, mail.NameInUse)
				must(t, b.End(t.Context(), []string{o.Session}))
				_, err = all[1].Register(t.Context(), next, mail.Registration{Name: "planner"}, nil, said)
			}
			must(t, err)
			o = next
			_, err = b.Send(t.Context(), o, mail.Draft{Body: fmt.Sprint("first of epoch ", round+1), To: []mail.Recipient{tester.to()}}, said)
			must(t, err)
			wg.Wait()
			same(t, "fenced senders", fenced.Load(), 4)
			after := b.count(`SELECT count(*) FROM deliveries d JOIN messages m ON m.message_id = d.message_id WHERE m.from_epoch <= ?1 AND d.seq >
				(SELECT min(e.seq) FROM deliveries e JOIN messages n ON n.message_id = e.message_id WHERE n.from_epoch > ?1)`, round)
			same(t, "messages of the old epoch behind one of the new", after, 0)
		}
		b.sound()
	})
}

// A send that races the release of its recipient is stored and expires, or is refused. No
// message stays open in a released mailbox.
func TestASendThatRacesARelease(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{SenderMessages: 100000, MailboxMessages: 100000}}, func(t *testing.T, b *bed) {
		all := books(t, b)
		for round := range 10 {
			tester := b.join("tester")
			var wg sync.WaitGroup
			sent := make(chan bool, 1)
			for i := range 4 {
				sender := b.join(fmt.Sprint("sender", i))
				wg.Go(func() {
					for n := 0; ; n++ {
						_, err := all[i%len(all)].Send(t.Context(), sender.Owner, draft(fmt.Sprint(round, " ", n), tester), said)
						select {
						case sent <- true:
						default:
						}
						if code(err) == mail.UnknownRecipient {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			<-sent
			_, err := all[round%len(all)].Unregister(t.Context(), tester.Owner, said)
			must(t, err)
			wg.Wait()
			same(t, "open messages", b.count(`SELECT count(*) FROM deliveries WHERE state IN ('held', 'queued', 'leased')`), 0)
		}
		b.sound()
	})
}

// Fsck finds no difference at any moment while six agents send, read, purge and sweep for two
// seconds, on PostgreSQL with two daemons.
func TestCountersAgreeUnderConcurrentUse(t *testing.T) {
	limits := mail.Limits{MailboxMessages: 20, SenderMessages: 10, Lease: 20 * time.Millisecond, Hold: 100 * time.Millisecond, Attempts: 3}
	onBoth(t, mail.Options{Evict: true, Limits: limits}, func(t *testing.T, b *bed) {
		all := books(t, b)
		agents := make([]*agent, 6)
		for i := range agents {
			agents[i] = b.join(fmt.Sprint("a", i))
		}
		until := time.Now().Add(2 * time.Second)
		var wg sync.WaitGroup
		for i, a := range agents {
			wg.Go(func() {
				book := all[i%len(all)]
				var after *mail.Receipt
				for n := 0; time.Now().Before(until); n++ {
					d := draft(fmt.Sprint(i, " ", n), agents[(i+n)%6], agents[(i+2*n+1)%6])
					d.To[0].Hold = n%5 == 0
					sent, err := book.Send(t.Context(), a.Owner, d, said)
					busy(t, err, mail.MailboxFull, mail.SenderQuota)
					switch {
					case n%3 == 0:
						got, err := book.Inbox(t.Context(), a.Owner, mail.Fetch{After: after, Max: 5}, said)
						busy(t, err)
						if err == nil {
							after = &got.Counts.Receipt
						}
					case n%11 == 0 && sent != nil:
						_, err = book.Desk().Purge(t.Context(), sent.MessageID, said)
						busy(t, err, mail.UnknownMessage)
					case n%7 == 0:
						_, err = book.Sweep(t.Context())
						busy(t, err)
					}
				}
			})
		}
		for time.Now().Before(until) {
			b.sound() // at every moment
			b.pass(time.Millisecond)
			time.Sleep(20 * time.Millisecond)
		}
		wg.Wait()
		b.sound()
	})
}

// busy accepts the refusals with these codes.
func busy(t *testing.T, err error, codes ...string) {
	for _, c := range codes {
		if code(err) == c {
			return
		}
	}
	if err != nil {
		t.Error(err)
	}
}
