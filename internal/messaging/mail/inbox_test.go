package mail_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

func TestAMessageComesAgainUntilItIsAcknowledged(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := planner.send(draft("hello", tester))
		for attempt := 1; attempt <= 5; attempt++ {
			got := tester.inbox(mail.Fetch{}).Messages[0]
			same(t, "id", got.ID, sent.MessageID)
			same(t, "attempt", got.Attempt, attempt)
			b.pass(30 * time.Second)
			again := tester.inbox(mail.Fetch{}).Messages[0] // the answer was lost
			same(t, "attempt of the same lease", again.Attempt, attempt)
			same(t, "lease", again.LeaseExpiresAt, got.LeaseExpiresAt+30_000)
			b.pass(121 * time.Second)
			if attempt%2 == 0 {
				b.sweep() // an inbox without a sweep before it does the same
			}
		}
		same(t, "messages", len(tester.inbox(mail.Fetch{}).Messages), 0)
		same(t, "state", planner.state(sent.MessageID), mail.Dead)
		same(t, "missed", tester.inbox(mail.Fetch{}).Counts.Missed, mail.Missed{Dead: 1})
		notices := planner.inbox(mail.Fetch{}).Counts.Notices
		same(t, "notices", len(notices), 1)
		same(t, "reason", notices[0].Reason, "attempts")
		b.sound()
	})
}

func TestALateReceiptIsAcceptedAfterTheLease(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := planner.send(draft("takes its time", tester))
		got := tester.inbox(mail.Fetch{})
		b.pass(10 * time.Minute)
		b.sweep()
		same(t, "state", planner.state(sent.MessageID), mail.Queued)
		same(t, "acked", tester.read(got).Acked, 1)
		b.sound()
	})
}

func TestAnUnreadMessageExpires(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		send := func(ttl int64, hold bool) string {
			d := draft(fmt.Sprint(ttl, hold), tester)
			d.TTL, d.To[0].Hold, d.To[0].Reason = ttl, hold, "policy"
			return planner.send(d).MessageID
		}
		short, leased, usual := send(60, false), send(90, false), send(0, false)
		tester.inbox(mail.Fetch{Max: 3})
		b.pass(89 * time.Second)
		equal(t, "what is left", bodies(tester.inbox(mail.Fetch{})), "90 false", "0 false")
		same(t, "short", planner.state(short), mail.Expired)
		b.pass(2 * time.Second)
		b.sweep()
		same(t, "leased", planner.state(leased), mail.Expired)
		held, heldShort := send(0, true), send(120, true)
		b.pass(121 * time.Second)
		b.sweep()
		same(t, "a held one with a short life", planner.state(heldShort), mail.Expired)
		b.pass(time.Hour)
		b.sweep()
		same(t, "a held one", planner.state(held), mail.Expired)
		reasons := make(map[string]string)
		for _, n := range planner.inbox(mail.Fetch{}).Counts.Notices {
			reasons[n.MessageID] = n.Reason
		}
		equal(t, "reasons", []string{reasons[short], reasons[leased], reasons[heldShort], reasons[held]}, "ttl", "ttl", "ttl", "hold")
		b.pass(23 * time.Hour)
		b.sweep()
		same(t, "one with the usual life", planner.state(usual), mail.Expired)
		same(t, "missed", tester.inbox(mail.Fetch{}).Counts.Missed, mail.Missed{Expired: 5})
		b.sound()
	})
}

func TestAThreadFilterSkipsNothing(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		thread := planner.send(draft("1 of the thread", tester)).Thread
		post := func(body string, in string) {
			d := draft(body, tester)
			d.Thread = in
			planner.send(d)
		}
		post("2", "")
		post("3", "")
		post("4 of the thread", thread)
		post("5", "")
		got := tester.inbox(mail.Fetch{Thread: thread})
		equal(t, "thread", bodies(got), "1 of the thread", "4 of the thread")
		got = tester.read(got)
		same(t, "acked", got.Acked, 2)
		equal(t, "the others", bodies(got), "2", "3", "5")

		// The answer with 2, 3 and 5 is lost; reading a thread later does not
		// acknowledge it.
		post("6 of the thread", thread)
		got = tester.inbox(mail.Fetch{Thread: thread})
		equal(t, "thread", bodies(got), "6 of the thread")
		got = tester.read(got)
		same(t, "acked", got.Acked, 1)
		equal(t, "messages of the lost answer", bodies(got), "2", "3", "5")
		same(t, "none is left", len(tester.read(got).Messages), 0)
		b.sound()
	})
}

// A receipt acknowledges only the messages of its own answer: after the answer that gave them
// was lost, the receipt of another answer acknowledges none of its other messages.
func TestAReceiptCoversTheMessagesOfItsOwnAnswerAlone(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		long := strings.Repeat("x", 100)
		planner.send(draft(long, tester))
		for i := range 3 {
			planner.send(draft(fmt.Sprint(i), tester))
		}
		cut := tester.inbox(mail.Fetch{MaxBytes: 50})
		peeked := tester.inbox(mail.Fetch{Peek: true, Max: 1})
		lost := tester.inbox(mail.Fetch{})
		same(t, "messages of the lost answer", len(lost.Messages), 4)
		_, looked, _, err := b.Look(t.Context(), tester.Owner)
		must(t, err)
		after := tester.inbox(mail.Fetch{Peek: true, After: &lost.Counts.Receipt})
		registered, err := b.Register(t.Context(), tester.Owner, mail.Registration{}, nil, said)
		must(t, err)
		for what, r := range map[string]mail.Receipt{
			"one that was cut": cut.Counts.Receipt, "a peek": peeked.Counts.Receipt, "a look": looked.Receipt,
			"a peek with a receipt": after.Counts.Receipt, "a registration": registered.Counts.Receipt,
		} {
			got := tester.inbox(mail.Fetch{After: &r})
			same(t, "acked by the receipt of "+what, got.Acked, 0)
			equal(t, "messages after "+what, bodies(got), long, "0", "1", "2")
		}
		few := tester.inbox(mail.Fetch{Max: 2})
		same(t, "marked", few.Messages[1].Again, true)
		planner.send(draft("new", tester))
		got := tester.read(few)
		same(t, "acked by the receipt of the first two", got.Acked, 2)
		equal(t, "what is left", bodies(got), "1", "2", "new")
		equal(t, "given before", []string{fmt.Sprint(got.Messages[0].Again, got.Messages[1].Again, got.Messages[2].Again)}, "true true false")
		same(t, "in all", tester.read(got).Acked, 3)
		b.sound()
	})
}

// The receipt of a registration does not cover notices: a session that takes a name over gets
// them with its inbox, until a receipt of an inbox covers them.
func TestNoticesSurviveATakeover(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := planner.send(draft("hello", tester))
		tester.inbox(mail.Fetch{})
		_, err := b.Ack(t.Context(), tester.Owner, []string{sent.MessageID}, true, "no", said)
		must(t, err)
		must(t, b.End(t.Context(), []string{planner.Owner.Session}))
		heir := owner("uid:1000", "heir")
		for range 2 {
			r, err := b.Register(t.Context(), heir, mail.Registration{Name: "planner"}, nil, said)
			must(t, err)
			got, err := b.Inbox(t.Context(), heir, mail.Fetch{After: &r.Counts.Receipt}, said)
			must(t, err)
			same(t, "notices", len(got.Counts.Notices), 1)
		}
		b.sound()
	})
}

func TestAReleasedHoldIsReadBehindAllReceipts(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		d := draft("held", tester)
		d.To[0].Hold = true
		held := planner.send(d)
		planner.send(draft("first", tester))
		got := tester.inbox(mail.Fetch{})
		same(t, "held", got.Counts.Held, 1)
		equal(t, "read", bodies(got), "first")
		settled, err := b.Desk().Approve(t.Context(), held.MessageID, "", nil, said)
		must(t, err)
		same(t, "seq", settled[0].Seq, 2)
		equal(t, "then", bodies(tester.read(got)), "held")
		notices := planner.inbox(mail.Fetch{}).Counts.Notices
		same(t, "notices", len(notices), 1)
		same(t, "notice", notices[0].State, mail.Queued)
		b.sound()
	})
}

func TestMaxAndBytesBoundAnAnswer(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		for i := range 5 {
			planner.send(draft(fmt.Sprint(i, strings.Repeat("é", 50)), tester))
		}
		got := tester.inbox(mail.Fetch{Max: 2})
		same(t, "messages", len(got.Messages), 2)
		same(t, "more", got.More, true)
		got = tester.inbox(mail.Fetch{After: &got.Counts.Receipt, MaxBytes: 202})
		same(t, "messages", len(got.Messages), 2)
		got = tester.inbox(mail.Fetch{After: &got.Counts.Receipt, MaxBytes: 50})
		same(t, "the first comes also when it is too large", len(got.Messages), 1)
		m := got.Messages[0]
		same(t, "truncated", m.Truncated, true)
		same(t, "whole characters", m.Body, "4"+strings.Repeat("é", 24))
		same(t, "bytes of the whole", m.BodyBytes, 101)
		same(t, "more", got.More, false)
		got = tester.inbox(mail.Fetch{After: &got.Counts.Receipt, MaxBytes: 101})
		same(t, "a truncated message is not covered", got.Acked, 0)
		same(t, "whole", got.Messages[0].Truncated, false)
		same(t, "attempt", got.Messages[0].Attempt, 1)
		same(t, "acked", tester.read(got).Acked, 1)
		b.sound()
	})
}

func TestACutMessageCanBeAcknowledgedByItsID(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft(strings.Repeat("x", 200), tester))
		got := tester.inbox(mail.Fetch{MaxBytes: 100})
		done, err := b.Ack(t.Context(), tester.Owner, []string{got.Messages[0].ID}, false, "", said)
		must(t, err)
		same(t, "acked", done.Acked, 1)
	})
}

func TestAPeekChangesNothing(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := planner.send(draft("hello", tester))
		peek := tester.inbox(mail.Fetch{Peek: true})
		equal(t, "peek", bodies(peek), "hello")
		same(t, "state", planner.state(sent.MessageID), mail.Queued)
		got := tester.inbox(mail.Fetch{After: &peek.Counts.Receipt})
		same(t, "acked by the receipt of a peek", got.Acked, 0)
		equal(t, "inbox", bodies(got), "hello")
		peek = tester.inbox(mail.Fetch{Peek: true, After: &got.Counts.Receipt})
		same(t, "acked by a peek", peek.Acked, 0)
		same(t, "state", planner.state(sent.MessageID), mail.Leased)
		same(t, "acked by the receipt of a peek", tester.read(peek).Acked, 0)
		same(t, "acked", tester.read(got).Acked, 1)
		b.sound()
	})
}

func TestAReceiptIsGoodForItsPeerAndEpochAlone(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft("hello", tester))
		r := tester.inbox(mail.Fetch{}).Counts.Receipt
		for name, change := range map[string]func(*mail.Receipt){
			"another peer": func(r *mail.Receipt) { r.PeerID = planner.Peer.ID }, "another epoch": func(r *mail.Receipt) { r.Epoch++ },
			"a seq that was not given": func(r *mail.Receipt) { r.Seq += 5 }, "a notice that there is not": func(r *mail.Receipt) { r.Notice += 5 },
			"a negative seq": func(r *mail.Receipt) { r.Seq = -1 },
		} {
			x := r
			change(&x)
			for _, peek := range []bool{false, true} {
				_, err := b.Inbox(t.Context(), tester.Owner, mail.Fetch{After: &x, Peek: peek}, said)
				if code(err) != mail.CursorInvalid {
					t.Errorf("%s: got %q", name, code(err))
				}
			}
		}
		must(t, b.End(t.Context(), []string{tester.Owner.Session}))
		heir := b.joinAs(owner("uid:1000", "heir"), mail.Registration{Name: "tester"})
		_, err := b.Inbox(t.Context(), heir.Owner, mail.Fetch{After: &r}, said)
		refused(t, err, mail.CursorInvalid)
		same(t, "the message", heir.inbox(mail.Fetch{}).Messages[0].Attempt, 2)
		b.sound()
	})
}

func TestMessagesOfOthersAnswerLikeUnknownOnes(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester, stranger := b.join("planner"), b.join("tester"), b.join("stranger")
		sent := planner.send(draft("hello", tester))
		tester.inbox(mail.Fetch{})
		const unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		for _, id := range []string{sent.MessageID, unknown} {
			for _, who := range []*agent{stranger, planner} {
				got, err := b.Ack(t.Context(), who.Owner, []string{id}, false, "", said)
				must(t, err)
				equal(t, "unknown", got.Unknown, id)
				same(t, "acked or already", got.Acked+got.Already, 0)
			}
			for _, who := range []*agent{stranger, tester} {
				_, err := b.Status(t.Context(), who.Owner, id)
				refused(t, err, mail.UnknownMessage)
			}
			_, err := b.SpawnOf(t.Context(), stranger.Owner, id)
			refused(t, err, mail.UnknownSpawn)
		}
		got := stranger.inbox(mail.Fetch{Thread: sent.Thread})
		same(t, "messages of another's thread", len(got.Messages), 0)
	})
}

func TestAnAcknowledgementIsOnce(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		one, two := planner.send(draft("one", tester)), planner.send(draft("two", tester))
		done, err := b.Ack(t.Context(), tester.Owner, []string{one.MessageID}, false, "", said)
		must(t, err)
		equal(t, "a message that was not given is unknown", done.Unknown, one.MessageID)
		tester.inbox(mail.Fetch{})
		done, err = b.Ack(t.Context(), tester.Owner, []string{one.MessageID, one.MessageID, two.MessageID}, false, "all good", said)
		must(t, err)
		equal(t, "acked", done.IDs, one.MessageID, two.MessageID)
		done, err = b.Ack(t.Context(), tester.Owner, []string{one.MessageID}, true, "no, after all", said)
		must(t, err)
		same(t, "already", done.Already, 1)
		status := planner.status(one.MessageID)[0]
		equal(t, "status", []string{status.State, status.Note}, mail.Acked, "all good")
		if status.AckedAt == 0 || status.GivenAt == 0 || status.Attempts != 1 {
			t.Errorf("status %+v", status)
		}
		b.sound()
	})
}

func TestNoticesComeInOrderUntilAReceiptCoversThem(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{SenderMessages: 200}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		var ids []string
		for i := range 105 {
			ids = append(ids, planner.send(draft(fmt.Sprint(i), tester)).MessageID)
		}
		for range 3 {
			got := tester.inbox(mail.Fetch{Max: 50})
			var given []string
			for _, m := range got.Messages {
				given = append(given, m.ID)
			}
			_, err := b.Ack(t.Context(), tester.Owner, given, true, "no", said)
			must(t, err)
		}
		first := planner.inbox(mail.Fetch{})
		again := planner.inbox(mail.Fetch{})
		for _, got := range []*mail.Batch{first, again} {
			same(t, "notices", len(got.Counts.Notices), 100)
			for i, n := range got.Counts.Notices {
				equal(t, "notice", []string{n.MessageID, n.State, n.Note, n.To}, ids[i], mail.Rejected, "no", "tester")
			}
		}
		same(t, "the rest", len(planner.read(first).Counts.Notices), 5)
		rest := planner.read(first) // a receipt that comes twice covers no more
		same(t, "the rest", len(rest.Counts.Notices), 5)
		same(t, "none", len(planner.read(rest).Counts.Notices), 0)
		b.sound()
	})
}

func TestAnEmptyInboxWritesNothing(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		tester := b.join("tester")
		before := b.db.Stats().Commits
		got := tester.inbox(mail.Fetch{Quiet: true})
		_, err := b.Inbox(t.Context(), tester.Owner, mail.Fetch{After: &got.Counts.Receipt, Quiet: true}, said)
		must(t, err)
		_, _, _, err = b.Look(t.Context(), tester.Owner)
		must(t, err)
		same(t, "commits", b.db.Stats().Commits, before)
		notes := b.notes.Load()
		_, err = b.Inbox(t.Context(), tester.Owner, mail.Fetch{}, func(*mail.Batch) any { return "record" })
		must(t, err)
		same(t, "notes", b.notes.Load(), notes+1)
	})
}

func TestPointersAreToTheNewestThatWait(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		for i := range 25 {
			planner.send(draft(fmt.Sprint(i), tester))
		}
		tester.inbox(mail.Fetch{Max: 2})
		_, c, got, err := b.Look(t.Context(), tester.Owner)
		must(t, err)
		same(t, "pending", c.Pending, 25)
		same(t, "newest", c.Newest, int64(25))
		same(t, "receipt", c.Receipt.Seq, int64(0))
		same(t, "pointers", len(got), 20)
		same(t, "first", got[0].Seq, int64(25))
		same(t, "from", got[0].From, "planner")
	})
}
