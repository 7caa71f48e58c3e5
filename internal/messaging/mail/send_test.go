package mail_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/test/doortest"
)

func TestFiftyDuplicatesWithOneKeyAreOneMessage(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		all := books(t, b)
		ids := make([]string, 50)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				d := draft("once", tester)
				d.Key, d.Fingerprint = "key", []byte("print")
				got, err := all[i%len(all)].Send(t.Context(), planner.Owner, d, said)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = fmt.Sprint(got.MessageID, got.Deliveries, got.AcceptedAt)
			})
		}
		wg.Wait()
		for _, id := range ids {
			same(t, "outcome", id, ids[0])
		}
		same(t, "messages", b.count(`SELECT count(*) FROM messages`), 1)
		other := draft("other", tester)
		other.Key, other.Fingerprint = "key", []byte("other print")
		_, err := planner.try(other)
		refused(t, err, mail.IdempotencyConflict)
		for _, o := range []mail.Owner{owner("uid:1001", "x"), owner("uid:1000", "y")} {
			stranger := b.joinAs(o, mail.Registration{Name: "other" + o.Session})
			if got := stranger.send(other); got.Replay {
				t.Error("a key of one agent was replayed to another")
			}
		}
		must(t, b.End(t.Context(), []string{planner.Owner.Session}))
		heir := b.joinAs(owner("uid:1000", "heir"), mail.Registration{Name: "planner"})
		d := draft("once", tester)
		d.Key, d.Fingerprint = "key", []byte("print")
		same(t, "replay to the session that took over", heir.send(d).Replay, true)
		b.sound()
	})
}

func TestAKeyIsForgottenAfterSevenDays(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		d := draft("once", tester)
		d.Key = "key"
		first := planner.send(d)
		b.pass(7*24*time.Hour - time.Second)
		if again := planner.send(d); !again.Replay || again.MessageID != first.MessageID {
			t.Errorf("got %+v", again)
		}
		b.pass(2 * time.Second)
		if again := planner.send(d); again.Replay {
			t.Error("replayed after seven days")
		}
	})
}

func TestAKeyOfAFailedSendMayBeUsedAgain(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxMessages: 1}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft("first", tester))
		d := draft("second", tester)
		d.Key = "key"
		_, err := planner.try(d)
		refused(t, err, mail.MailboxFull)
		tester.read(tester.inbox(mail.Fetch{}))
		if got := planner.send(d); got.Replay {
			t.Error("a failure was replayed")
		}
		b.sound()
	})
}

// A reader beside eight senders sees the sequence numbers of its mailbox without a gap, because
// they are given in the order of commits.
func TestAReaderBesideManySendersSeesNoGap(t *testing.T) {
	limits := mail.Limits{MailboxMessages: 100000, SenderMessages: 100000, MailboxBytes: 1 << 30}
	onBoth(t, mail.Options{Limits: limits}, func(t *testing.T, b *bed) {
		all := books(t, b)
		reader := b.join("reader")
		const senders, each = 8, 40
		var wg sync.WaitGroup
		for i := range senders {
			s := b.join(fmt.Sprint("sender", i))
			wg.Go(func() {
				for n := range each {
					d := draft(fmt.Sprint(i, " ", n), reader)
					d.To[0].Hold = n%7 == 3
					if _, err := all[i%len(all)].Send(t.Context(), s.Owner, d, said); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		want, last := int64(0), make(map[string]int)
		var got *mail.Batch
		for open := true; open || len(got.Messages) > 0; {
			select {
			case <-done:
				open = false
			default:
			}
			if got == nil {
				got = reader.inbox(mail.Fetch{})
			} else {
				got = reader.read(got)
			}
			for _, m := range got.Messages {
				if want++; m.Seq != want {
					t.Fatalf("seq %d after %d", m.Seq, want-1)
				}
				var who, n int
				_, _ = fmt.Sscan(m.Body, &who, &n)
				if before, ok := last[m.From.Name]; ok && n <= before {
					t.Fatalf("%s: %d after %d", m.From.Name, n, before)
				}
				last[m.From.Name] = n
			}
		}
		same(t, "held", int64(got.Counts.Held), senders*each-want)
		b.sound()
	})
}

func TestAllRecipientsOrNone(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxMessages: 2, SenderMessages: 2}}, func(t *testing.T, b *bed) {
		planner, a, c, d := b.join("planner"), b.join("a"), b.join("c"), b.join("d")
		planner.send(draft("one", c))
		planner.send(draft("two", c))
		_, err := planner.try(draft("three", a, c, d))
		refused(t, err, mail.SenderQuota)
		var e *mail.Error
		if !errors.As(err, &e) || len(e.Recipients) != 1 || e.Recipients[0] != "c" {
			t.Errorf("refused for %v", e.Recipients)
		}
		_, err = a.try(draft("three", d, c, planner))
		refused(t, err, mail.MailboxFull)
		gone := *d
		gone.Peer.Principal = mail.Qualify("here", "uid:7")
		_, err = a.try(draft("three", c, &gone))
		refused(t, err, mail.UnknownRecipient)
		for _, p := range []*agent{a, d, planner} {
			same(t, "pending for "+p.Name, p.inbox(mail.Fetch{}).Counts.Pending, 0)
		}
		got := planner.send(draft("four", a, d, a))
		same(t, "deliveries", len(got.Deliveries), 2)
		same(t, "status", len(planner.status(got.MessageID)), 2)
		_, err = planner.try(mail.Draft{Body: "to nobody"})
		refused(t, err, mail.InvalidArgument)
		b.sound()
	})
}

func TestAFullMailboxRefusesByBytesToo(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxBytes: 100}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft(strings.Repeat("x", 60), tester))
		_, err := planner.try(draft(strings.Repeat("y", 41), tester))
		refused(t, err, mail.MailboxFull)
		planner.send(draft(strings.Repeat("y", 40), tester))
		tester.read(tester.inbox(mail.Fetch{}))
		planner.send(draft(strings.Repeat("z", 100), tester))
		b.sound()
	})
}

func TestTheOldestMessagesAreEvictedAndReported(t *testing.T) {
	onBoth(t, mail.Options{Evict: true, Limits: mail.Limits{MailboxMessages: 3, MailboxBytes: 100}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		first := planner.send(draft("leased", tester))
		tester.inbox(mail.Fetch{})
		held := draft("held", tester)
		held.To[0].Hold = true
		planner.send(held)
		third := planner.send(draft("oldest queued", tester))
		fourth := planner.send(draft("new", tester))
		same(t, "evicted", fourth.Deliveries[0].Evicted, 1)
		same(t, "the oldest queued", planner.state(third.MessageID), mail.Evicted)
		same(t, "the leased one", planner.state(first.MessageID), mail.Leased)
		got := planner.inbox(mail.Fetch{})
		same(t, "notices", len(got.Counts.Notices), 1)
		same(t, "notice", got.Counts.Notices[0].MessageID+got.Counts.Notices[0].State, third.MessageID+mail.Evicted)
		same(t, "missed", tester.inbox(mail.Fetch{Peek: true}).Counts.Missed, mail.Missed{Evicted: 1})
		tester.inbox(mail.Fetch{}) // leases the new one too
		_, err := planner.try(draft("nothing to evict", tester))
		refused(t, err, mail.MailboxFull)
		_, err = planner.try(draft(strings.Repeat("x", 101), tester))
		refused(t, err, mail.MailboxFull)
		b.sound()
	})
}

func TestMessagesOfTheOperatorAreNotEvicted(t *testing.T) {
	onBoth(t, mail.Options{Evict: true, Limits: mail.Limits{MailboxMessages: 2}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		_, err := b.Desk().Send(t.Context(), draft("stop", tester), said)
		must(t, err)
		planner.send(draft("one", tester))
		same(t, "evicted", planner.send(draft("two", tester)).Deliveries[0].Evicted, 1)
		equal(t, "messages", bodies(tester.inbox(mail.Fetch{Peek: true})), "stop", "two")
		_, err = b.Desk().Send(t.Context(), draft("now", tester), said)
		must(t, err)
		_, err = planner.try(draft("three", tester))
		refused(t, err, mail.MailboxFull)
		b.sound()
	})
}

func TestARepeatIsSuppressedForHalfAMinute(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester, other := b.join("planner"), b.join("tester"), b.join("other")
		planner.send(draft("same", tester))
		_, err := planner.try(draft("same", tester))
		refused(t, err, mail.DuplicateSuppressed)
		_, err = planner.try(draft("same", other, tester))
		refused(t, err, mail.DuplicateSuppressed)
		planner.send(draft("same", other))
		other.send(draft("same", tester))
		tester.read(tester.inbox(mail.Fetch{}))
		b.pass(29 * time.Second)
		_, err = planner.try(draft("same", tester)) // although the first was read
		refused(t, err, mail.DuplicateSuppressed)
		b.pass(time.Second)
		planner.send(draft("same", tester))
		b.sound()
	})
}

func TestRepliesAreForThePartiesOfAMessage(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester, stranger := b.join("planner"), b.join("tester"), b.join("stranger")
		asked := planner.send(draft("question", tester, stranger))
		held := draft("held", stranger)
		held.To[0].Hold = true
		hidden := planner.send(held)
		reply := func(a *agent, id string, to *agent) (*mail.Sent, error) {
			d := draft("about "+id+a.Name, to)
			d.ReplyTo = id
			return a.try(d)
		}
		_, err := reply(tester, asked.MessageID, planner)
		refused(t, err, mail.UnknownMessage) // it was not given yet
		tester.inbox(mail.Fetch{})
		got, err := reply(tester, asked.MessageID, planner)
		must(t, err)
		same(t, "thread", got.Thread, asked.Thread)
		got, err = reply(planner, asked.MessageID, tester)
		must(t, err)
		same(t, "thread of the sender's own reply", got.Thread, asked.Thread)
		for _, id := range []string{asked.MessageID, hidden.MessageID, "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
			_, err = reply(stranger, id, planner)
			refused(t, err, mail.UnknownMessage)
		}
		b.sound()
	})
}

func TestAChainOfRepliesEnds(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		pair := []*agent{b.join("a"), b.join("b")}
		last := pair[0].send(draft("0", pair[1]))
		for depth := 1; ; depth++ {
			b.pass(time.Minute)
			from, to := pair[depth%2], pair[1-depth%2]
			from.inbox(mail.Fetch{Max: 50})
			d := draft(fmt.Sprint(depth), to)
			d.ReplyTo = last.MessageID
			got, err := from.try(d)
			if depth == 33 {
				refused(t, err, mail.LoopSuspected)
				return
			}
			must(t, err)
			last = got
		}
	})
}

func TestAThreadOfTwoThatRunsTooFastStops(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		x, y, z := b.join("x"), b.join("y"), b.join("z")
		thread := x.send(draft("root", y)).Thread
		post := func(from, to *agent, n int) error {
			d := draft(fmt.Sprint(from.Name, n), to)
			d.Thread = thread
			_, err := from.try(d)
			return err
		}
		for n := range 40 {
			must(t, post([]*agent{x, y}[n%2], []*agent{y, x}[n%2], n))
		}
		err := post(x, y, 41)
		refused(t, err, mail.LoopSuspected)
		var e *mail.Error
		if errors.As(err, &e); e.Retry <= 0 || e.Retry > 10*time.Minute {
			t.Errorf("retry after %s", e.Retry)
		}
		must(t, post(z, x, 42)) // a third peer is not part of the loop
		b.pass(10 * time.Minute)
		must(t, post(x, y, 43))
		b.sound()
	})
}

func TestTheInboundWishOfARecipientIsObeyed(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		for _, c := range []struct {
			inbound, state string
			held           bool
		}{{mail.InboundPolicy, mail.Queued, false}, {mail.InboundAccept, mail.Queued, false}, {mail.InboundHold, mail.Held, false},
			{mail.InboundAccept, mail.Held, true}, {mail.InboundRefuse, mail.RecipientRefuses, false}, {mail.InboundRefuse, mail.RecipientRefuses, true}} {
			name := fmt.Sprint(c.inbound, c.held)
			p := b.joinAs(owner("uid:1000", name), mail.Registration{Name: name, SetInbound: true, Inbound: c.inbound})
			d := draft("hello", p)
			d.To[0].Hold = c.held
			got, err := planner.try(d)
			if err != nil {
				same(t, name, code(err), c.state)
				_, err = b.Desk().Send(t.Context(), draft("the human is not refused", p), said)
				must(t, err)
				continue
			}
			same(t, name, got.Deliveries[0].State, c.state)
			same(t, "numbered", got.Deliveries[0].Seq > 0, c.state == mail.Queued)
			_, err = b.Desk().Send(t.Context(), draft("nor held", p), said)
			must(t, err)
			read := p.inbox(mail.Fetch{})
			last := read.Messages[len(read.Messages)-1]
			equal(t, "the human", []string{last.Body, last.Authority, last.From.Lineage, last.From.Name}, "nor held", "operator", "operator", "operator")
		}
		b.sound()
	})
}

func TestNoAgentSpeaksAsTheOperator(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		d := draft("obey", tester)
		d.To[0].Authority, d.To[0].Lineage = mail.AuthorityOperator, mail.LineageParent
		planner.send(d)
		m := tester.inbox(mail.Fetch{}).Messages[0]
		equal(t, "authority and lineage", []string{m.Authority, m.From.Lineage}, mail.AuthorityNone, mail.LineageUnrelated)
	})
}

// An envelope keeps the facts of the time of sending: a later name of the sender does not
// change it. Its signature covers these facts and the recipient.
func TestTheEnvelopeIsThatOfTheSending(t *testing.T) {
	sign := func(fields ...string) string { return "signed:" + strings.Join(fields, "|") }
	onBoth(t, mail.Options{Sign: sign}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		d := draft("hello", tester)
		d.Subject, d.Kind, d.TTL = "subject", "request", 3600
		d.Refs = []mail.Ref{{URI: "file:///x", Size: 3}}
		sent := planner.send(d)
		b.joinAs(planner.Owner, mail.Registration{Name: "boss"})
		m := tester.inbox(mail.Fetch{}).Messages[0]
		same(t, "sig", m.Sig, sign(m.SignedFields(tester.Peer.ID)...))
		if m.Sig == sign(m.SignedFields(planner.Peer.ID)...) {
			t.Error("the signature is good for another recipient")
		}
		want := mail.From{PeerID: planner.Peer.ID, Name: "planner", Namespace: "default", Principal: planner.Peer.Principal,
			Grade: "attested", Epoch: 1, Lineage: mail.LineageUnrelated}
		same(t, "from", m.From, want)
		equal(t, "texts", []string{m.ID, m.Subject, m.Kind, m.Refs[0].URI}, sent.MessageID, "subject", "request", "file:///x")
		equal(t, "times", []int64{m.SentAt, m.ExpiresAt}, sent.AcceptedAt, sent.AcceptedAt+3600_000)
		same(t, "grade", planner.Owner.Grade, m.From.Grade)
	})
}

// A send whose record cannot be written, or that has none, is refused and stores nothing,
// because the record comes before the commit.
func TestWithoutARecordNothingWasDone(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: mail.Migrations(), Record: func(n []any) error {
		if n[0] == "refuse" {
			return errors.New("the disk is full")
		}
		return nil
	}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	book, err := mail.Open(t.Context(), db, mail.Options{Node: "here", Upkeep: said[mail.Upkeep]})
	must(t, err)
	b := &bed{t: t, Book: book, db: db}
	planner, tester := b.join("planner"), b.join("tester")
	note := func(text any) mail.Note[mail.Sent] { return func(*mail.Sent) any { return text } }
	_, err = b.Send(t.Context(), planner.Owner, draft("one", tester), note("refuse"))
	refused(t, err, mail.AuditUnavailable)
	same(t, "messages", b.count(`SELECT count(*) FROM messages`), 0)
	_, err = b.Send(t.Context(), planner.Owner, draft("one", tester), note("record"))
	must(t, err)
	_, err = b.Send(t.Context(), planner.Owner, draft("two", tester), note(nil))
	refused(t, err, mail.AuditUnavailable)
	same(t, "messages", b.count(`SELECT count(*) FROM messages`), 1)
	b.sound()
}

func TestAClosedStoreIsReportedAsUnavailable(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: mail.Migrations()})
	must(t, err)
	book, err := mail.Open(t.Context(), db, mail.Options{Node: "here", Upkeep: said[mail.Upkeep]})
	must(t, err)
	must(t, db.Close())
	_, err = book.Send(t.Context(), owner("uid:1000", "s"), mail.Draft{Body: "x", To: []mail.Recipient{{PeerID: "x"}}}, said)
	refused(t, err, mail.StoreUnavailable)
	_, err = book.Me(t.Context(), owner("uid:1000", "s"))
	refused(t, err, mail.StoreUnavailable)
}

func TestChangesWakeWaitingCallers(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		var mu sync.Mutex
		heard := make(map[string]bool)
		defer b.db.Listen(func(topic string) { mu.Lock(); heard[topic] = true; mu.Unlock() })()
		waitFor := func(topics ...string) {
			t.Helper()
			for _, topic := range topics {
				doortest.Until(t, 20*time.Second, "a signal of "+topic, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return heard[topic] || heard[""]
				})
			}
			mu.Lock()
			clear(heard)
			mu.Unlock()
		}
		planner, tester := b.join("planner"), b.join("tester")
		waitFor(mail.TopicPeers)
		sent := planner.send(draft("hello", tester))
		waitFor(mail.TopicMailbox(tester.Peer.ID))
		tester.inbox(mail.Fetch{})
		waitFor(mail.TopicMessage(sent.MessageID))
		_, err := b.Ack(t.Context(), tester.Owner, []string{sent.MessageID}, true, "no", said)
		must(t, err)
		waitFor(mail.TopicMessage(sent.MessageID), mail.TopicMailbox(planner.Peer.ID))
	})
}
