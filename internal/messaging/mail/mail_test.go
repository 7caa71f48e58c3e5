package mail_test

import (
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

func TestSentReadAcknowledged(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := planner.send(draft("hello", tester))
		same(t, "state", sent.Deliveries[0].State, mail.Queued)
		same(t, "seq", sent.Deliveries[0].Seq, 1)
		same(t, "live", sent.Deliveries[0].Live, true)
		got := tester.inbox(mail.Fetch{})
		equal(t, "bodies", bodies(got), "hello")
		m := got.Messages[0]
		same(t, "from", m.From.Name, "planner")
		same(t, "attempt", m.Attempt, 1)
		same(t, "state", planner.state(sent.MessageID), mail.Leased)
		got = tester.read(got)
		same(t, "acked", got.Acked, 1)
		same(t, "state", planner.state(sent.MessageID), mail.Acked)
		same(t, "messages", len(got.Messages), 0)
		b.sound()
	})
}
