package mail_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/test/doortest"
)

func TestTheHumanReadsAndWrites(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		_, found, err := b.Resolve(t.Context(), planner.Owner, []string{mail.Operator})
		must(t, err)
		human := &agent{Peer: found[0]}
		sent := planner.send(draft("may I?", human))
		same(t, "live", sent.Deliveries[0].Live, true)
		for range 7 {
			got, err := b.Desk().Inbox(t.Context(), false, said)
			must(t, err)
			equal(t, "inbox", bodies(got), "may I?")
		}
		same(t, "state", planner.state(sent.MessageID), mail.Queued)
		got, err := b.Desk().Inbox(t.Context(), true, func(*mail.Batch) any { return "record" })
		must(t, err)
		same(t, "acked", got.Acked, 1)
		same(t, "state", planner.state(sent.MessageID), mail.Acked)
		answer, err := b.Desk().Send(t.Context(), draft("you may", planner), said)
		must(t, err)
		same(t, "from", answer.From.Name, mail.Operator)
		planner.inbox(mail.Fetch{})
		_, err = b.Ack(t.Context(), planner.Owner, []string{answer.MessageID}, true, "too late", said)
		must(t, err)
		got, err = b.Desk().Inbox(t.Context(), true, said)
		must(t, err)
		same(t, "notices", len(got.Counts.Notices), 1)
		same(t, "note", got.Counts.Notices[0].Note, "too late")
		got, err = b.Desk().Inbox(t.Context(), true, said)
		must(t, err)
		same(t, "notices", len(got.Counts.Notices), 0)
		b.sound()
	})
}

func TestEachNodeHasItsOwnHuman(t *testing.T) {
	t.Parallel()
	b := postgresBed(t, mail.Options{})
	there := openBed(t, mail.Options{Node: "there"}, &bed{dsn: b.dsn})
	far := owner("uid:1000", "far")
	far.Node, far.Principal = "there", mail.Qualify("there", "uid:1000")
	planner := there.joinAs(far, mail.Registration{Name: "planner"})
	_, found, err := there.Resolve(t.Context(), planner.Owner, []string{mail.Operator})
	must(t, err)
	planner.send(draft("hello", &agent{Peer: found[0]}))
	got, err := b.Desk().Inbox(t.Context(), false, said)
	must(t, err)
	same(t, "here", len(got.Messages), 0)
	got, err = there.Desk().Inbox(t.Context(), false, said)
	must(t, err)
	same(t, "there", len(got.Messages), 1)
}

func TestTheHumanSettlesHolds(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, x, y := b.join("planner"), b.join("x"), b.join("y")
		d := draft("held for both", x, y)
		d.To[0].Hold, d.To[1].Hold, d.To[0].Reason = true, true, "policy"
		held := planner.send(d)
		d.Body = "to refuse"
		no := planner.send(d)
		all, err := b.Desk().Holds(t.Context())
		must(t, err)
		same(t, "holds", len(all), 4)
		same(t, "text of an envelope", all[0].Body, "")
		shown := []string{held.Deliveries[0].PeerID}
		got, err := b.Desk().Approve(t.Context(), held.MessageID, "", shown, said)
		must(t, err)
		same(t, "approved, of the mailboxes that were shown", len(got), 1)
		same(t, "let into the mailbox that was shown", got[0].PeerID, shown[0])
		_, err = b.Desk().Approve(t.Context(), held.MessageID, "", []string{}, said)
		refused(t, err, mail.UnknownMessage)
		got, err = b.Desk().Approve(t.Context(), held.MessageID, "", nil, said)
		must(t, err)
		same(t, "approved, the rest", len(got), 1)
		_, err = b.Desk().Approve(t.Context(), held.MessageID, "", nil, said)
		refused(t, err, mail.UnknownMessage)
		_, err = b.Desk().Reject(t.Context(), no.MessageID, "", said)
		must(t, err)
		same(t, "missed", x.inbox(mail.Fetch{}).Counts.Missed.Refused, 1)
		_, err = b.Desk().Purge(t.Context(), held.MessageID, said)
		must(t, err)
		for _, s := range planner.status(held.MessageID) {
			same(t, "state", s.State, mail.Purged)
		}
		_, err = b.Desk().Purge(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", said)
		refused(t, err, mail.UnknownMessage)
		b.sound()

		late := planner.send(draft("late", x, y)).MessageID
		_, err = b.Desk().Requeue(t.Context(), late, said)
		refused(t, err, mail.UnknownMessage)
		y.read(y.inbox(mail.Fetch{}))
		b.pass(25 * time.Hour)
		b.sweep()
		all, err = b.Desk().Holds(t.Context())
		must(t, err)
		same(t, "messages that can be sent again", len(all), 1)
		got, err = b.Desk().Requeue(t.Context(), late, said)
		must(t, err)
		same(t, "sent again", len(got), 1)
		read := x.inbox(mail.Fetch{})
		equal(t, "again", []string{read.Messages[0].ID, read.Messages[0].Body, read.Messages[0].From.Name, read.Messages[0].Thread}, got[0].NewID, "late", "planner", got[0].NewID)
		_, err = b.Desk().Requeue(t.Context(), late, said)
		refused(t, err, mail.UnknownMessage)
		same(t, "its own final state", planner.status(late)[0].State+planner.status(late)[1].State, "expiredacked")
		same(t, "the new one", planner.state(got[0].NewID), mail.Leased)
		b.sound()
	})
}

func TestAPausedPeerGetsItsMailWhenItGoesOn(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		must(t, b.Desk().Pause(t.Context(), tester.Peer.ID, true, said))
		sent := planner.send(draft("one", tester))
		same(t, "state", sent.Deliveries[0].State, mail.Held)
		same(t, "paused", sent.Deliveries[0].Paused, true)
		d := draft("two", tester)
		d.To[0].Hold, d.To[0].Reason = true, "policy"
		planner.send(d)
		planner.send(draft("three", tester))
		same(t, "messages", len(tester.inbox(mail.Fetch{}).Messages), 0)
		must(t, b.Desk().Pause(t.Context(), tester.Peer.ID, false, said))
		equal(t, "messages", bodies(tester.inbox(mail.Fetch{})), "one", "three")
		b.sound()
	})
}

// With the option Passkey a held message is released only by Approve with a passkey: the end of
// a pause leaves it held, and after its hold has ended, Requeue holds it again. A message that
// was never held is requeued without a hold.
func TestOnlyAPasskeyReleasesHeldMessages(t *testing.T) {
	onSQLite(t, mail.Options{Passkey: true}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		let := planner.send(draft("let in", tester))
		d := draft("by policy", tester)
		d.To[0].Hold, d.To[0].Reason = true, "policy"
		held := planner.send(d)
		must(t, b.Desk().Pause(t.Context(), tester.Peer.ID, true, said))
		paused := planner.send(draft("by the pause", tester))
		_, err := b.Desk().Approve(t.Context(), held.MessageID, "", nil, said)
		refused(t, err, mail.PasskeyRequired)
		var left int
		must(t, b.Desk().Pause(t.Context(), tester.Peer.ID, false, func(p *mail.Peer) any { left = p.Held; return said(p) }))
		same(t, "still held", left, 2)
		for _, m := range []*mail.Sent{held, paused} {
			same(t, "state", planner.state(m.MessageID), mail.Held)
		}
		b.pass(25 * time.Hour)
		b.sweep()
		again := map[string]string{}
		for _, m := range []*mail.Sent{let, held, paused} {
			got, err := b.Desk().Requeue(t.Context(), m.MessageID, said)
			must(t, err)
			again[m.MessageID] = got[0].NewID
		}
		equal(t, "delivered", bodies(tester.inbox(mail.Fetch{})), "let in")
		all, err := b.Desk().Holds(t.Context())
		must(t, err)
		same(t, "held again", len(all), 2)
		same(t, "whose mailbox", all[0].Principal, tester.Peer.Principal)
		for _, m := range []*mail.Sent{held, paused} {
			_, err := b.Desk().Approve(t.Context(), again[m.MessageID], "key", nil, said)
			must(t, err)
		}
		same(t, "messages", len(tester.inbox(mail.Fetch{}).Messages), 3)
		b.sound()
	})
}

func TestTailAndTraceTellEveryChange(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		none, place, err := b.Desk().Changes(t.Context(), "", -1, 10)
		must(t, err)
		same(t, "changes", len(none), 0)
		sent := planner.send(draft("hello", tester))
		tester.read(tester.inbox(mail.Fetch{}))
		envelopes, changes, err := b.Desk().Trace(t.Context(), sent.MessageID)
		must(t, err)
		same(t, "envelopes", len(envelopes), 1)
		same(t, "no text", envelopes[0].Body, "")
		want := []string{"queued", "queued leased", "leased acked"}
		var got []string
		for _, c := range changes {
			got = append(got, fmt.Sprint(c.Before, map[bool]string{true: " "}[c.Before != ""], c.After))
		}
		equal(t, "trace", got, want...)
		tail := func() (all []mail.Change) {
			doortest.Until(t, 20*time.Second, "three changes", func() bool {
				var some []mail.Change
				some, place, err = b.Desk().Changes(t.Context(), "", place, 2)
				must(t, err)
				all = append(all, some...)
				return len(all) >= 3
			})
			return all
		}
		all := tail()
		same(t, "tail", len(all), 3)
		for i, c := range all {
			same(t, "change", c, changes[i])
		}
		none, _, err = b.Desk().Changes(t.Context(), planner.Peer.ID, 0, 10)
		must(t, err)
		same(t, "changes in the sender's own mailbox", len(none), 0)
		_, _, err = b.Desk().Trace(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV")
		refused(t, err, mail.UnknownMessage)
	})
}

func TestMailboxesAreShownWithoutTextsUnlessAsked(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		planner.send(draft("secret", tester))
		for _, bodies := range []bool{false, true} {
			all, err := b.Desk().Mailbox(t.Context(), tester.Peer.ID, bodies)
			must(t, err)
			same(t, "text", all[0].Body, map[bool]string{true: "secret"}[bodies])
			same(t, "state", all[0].State, mail.Queued)
		}
		got, err := b.Desk().Retire(t.Context(), tester.Peer.ID, said)
		must(t, err)
		same(t, "expired with it", got.Pending, 1)
		total, err := b.Desk().Totals(t.Context())
		must(t, err)
		equal(t, "totals", []int64{total.Accepted, total.States[mail.Expired], int64(total.Peers)}, 1, 1, 1)
	})
}
