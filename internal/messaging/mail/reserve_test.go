package mail_test

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// A mailbox that is full in any way accepts 100 more messages of the operator and no more,
// without evicting any. Reading makes room again.
func TestTheOperatorHasAReserve(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]mail.Options{
		"full of messages": {Limits: mail.Limits{MailboxMessages: 2}}, "full of bytes": {Limits: mail.Limits{MailboxBytes: 20}},
		"full of one sender": {Limits: mail.Limits{SenderMessages: 2}}, "with evictions": {Limits: mail.Limits{MailboxMessages: 2}, Evict: true},
	} {
		t.Run(what, func(t *testing.T) {
			onBoth(t, o, func(t *testing.T, b *bed) {
				planner, tester := b.join("planner"), b.join("tester")
				planner.send(draft("12345678", tester))
				planner.send(draft("23456789", tester))
				if !o.Evict {
					_, err := planner.try(draft("34567890", tester))
					if c := code(err); c != mail.MailboxFull && c != mail.SenderQuota {
						t.Fatalf("the mailbox is not full: %v", err)
					}
				}
				for i := range 100 {
					_, err := b.Desk().Send(t.Context(), draft("STOP", tester), said)
					if err != nil {
						t.Fatalf("the operator's message %d: %v", i, err)
					}
				}
				_, err := b.Desk().Send(t.Context(), draft("STOP", tester), said)
				refused(t, err, mail.SenderQuota)
				same(t, "messages that wait", b.count(`SELECT queued FROM mailboxes WHERE peer_id = ?1`, tester.Peer.ID), 102)
				same(t, "evicted", b.count(`SELECT evicted FROM mailboxes WHERE peer_id = ?1`, tester.Peer.ID), 0)
				got := tester.inbox(mail.Fetch{Max: 50})
				tester.read(got)
				_, err = b.Desk().Send(t.Context(), draft("STOP", tester), said)
				must(t, err)
				b.sound()
			})
		})
	}
}

// A message of an agent that the operator requeues does not use the operator's reserve.
func TestARequeuedMessageNeedsRoom(t *testing.T) {
	onSQLite(t, mail.Options{Limits: mail.Limits{MailboxMessages: 1}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		d := draft("late", tester)
		d.TTL = 60
		late := planner.send(d)
		b.pass(2 * time.Minute)
		b.sweep()
		planner.send(draft("fills it", tester))
		_, err := b.Desk().Requeue(t.Context(), late.MessageID, said)
		refused(t, err, mail.MailboxFull)
	})
}
