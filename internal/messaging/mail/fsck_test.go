package mail_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// Fsck finds each kind of planted damage in a book with mail in every state, and repairs it
// unless the case is marked as not repairable.
func TestFsckFindsPlantedDamageAndMendsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		damage string
		finds  string
		keeps  bool // it cannot be mended
	}{
		{`UPDATE mailboxes SET queued = queued + 1 WHERE queued > 0`, "counted as queued", false},
		{`UPDATE mailboxes SET accepted = accepted + 1, acked = acked + 1 WHERE acked > 0`, "counted as acked", false},
		{`UPDATE mailboxes SET accepted = accepted + 3 WHERE acked > 0`, "states sum up", false},
		{`UPDATE mailboxes SET bytes = bytes + 7 WHERE queued > 0`, "bytes are counted", false},
		{`UPDATE mailboxes SET last_seq = last_seq + 2 WHERE queued > 0`, "numbers are missing", false},
		{`UPDATE mailboxes SET last_seq = 1 WHERE queued > 0`, "higher than the last", false},
		{`DELETE FROM deliveries WHERE state = 'queued' AND seq > 1`, "counted as queued", false},
		{`DELETE FROM deliveries WHERE state = 'acked'`, "numbers are missing", false},
		{`DELETE FROM deliveries WHERE state = 'held'`, "counted as held", false},
		{`UPDATE deliveries SET state = 'queued' WHERE state = 'leased'`, "counted as", false},
		{`UPDATE deliveries SET seq = 2 WHERE state = 'queued'`, "given twice", true},
		{`UPDATE deliveries SET seq = 0 WHERE state = 'queued'`, "has no sequence number", false},
		{`UPDATE deliveries SET seq = 99 WHERE state = 'held'`, "is held and has a sequence number", true},
		{`UPDATE deliveries SET given_epoch = 7 WHERE state = 'leased'`, "does not own the mailbox", false},
		{`UPDATE peers SET session = '' WHERE name = 'tester'`, "does not own the mailbox", false},
		{`UPDATE deliveries SET due = due + 999999999 WHERE state = 'queued'`, "too late", false},
		{`UPDATE deliveries SET due = due + 999999999 WHERE state = 'leased'`, "too late", false},
		{`UPDATE deliveries SET notice_seq = 0 WHERE state = 'rejected'`, "no notice of the end", false},
		{`UPDATE deliveries SET notice_seq = 1 WHERE notice_seq > 1`, "number of another notice", false},
		{`UPDATE outboxes SET last_notice = 0`, "sender's notices", false},
		{`UPDATE outboxes SET covered = 50`, "sender's notices", false},
		{`DELETE FROM outboxes`, "no outbox", false},
		{`DELETE FROM messages WHERE message_id IN (SELECT message_id FROM deliveries WHERE state = 'queued')`, "has no message", false},
		{`INSERT INTO messages SELECT '01ARZ3NDEKTSV4RRFFQ69G5FAV', thread_id, reply_to, depth, kind, priority, subject, body, bytes, sha256,
			repeats, refs, sent_at, ttl, ack_deadline, sender_id, from_name, from_namespace, from_principal, from_grade, from_epoch FROM messages LIMIT 1`, "has no delivery", false},
		{`DELETE FROM mailboxes WHERE queued > 0`, "has no mailbox", false},
		{`UPDATE mailboxes SET active = 0 WHERE queued > 0`, "another owner", false},
		{`UPDATE mailboxes SET principal = 'here uid:0' WHERE queued > 0`, "another owner", false},
		{`DELETE FROM peer_names WHERE name = 'tester'`, "does not own its name", false},
		{`UPDATE peer_names SET kind = 'alias' WHERE name = 'tester'`, "does not own its name", false},
		{`INSERT INTO peer_names (namespace, name, kind, peer_id, principal, parent, expires_at) VALUES ('default', 'ghost', 'peer', 'x', 'p', '', 0)`, "belongs to no peer", false},
		{`UPDATE peer_spaces SET peers = peers + 1`, "count of peers", false},
		{`UPDATE mail_nodes SET spawns_open = 3`, "spawns of the node", false},
	} {
		t.Run(fmt.Sprintf("%s after %.40s", c.finds, c.damage), func(t *testing.T) {
			onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
				everyState(b)
				b.sound()
				if b.exec(c.damage) == 0 {
					t.Fatal("nothing was damaged")
				}
				b.sweep() // a sweep works in spite of the damage
				got, err := b.Desk().Fsck(t.Context(), false, said)
				must(t, err)
				if got.OK || !strings.Contains(fmt.Sprint(got.Problems), c.finds) {
					t.Fatalf("found %+v, want %q", got.Problems, c.finds)
				}
				got, err = b.Desk().Fsck(t.Context(), true, func(c *mail.Check) any { return c.Repaired })
				must(t, err)
				if c.keeps {
					same(t, "ok", got.OK, false)
					return
				}
				if !got.OK || got.Repaired == 0 {
					t.Fatalf("after %d repairs: %+v", got.Repaired, got.Problems)
				}
				b.sound()
				// The book can still be swept.
				_, err = b.Sweep(t.Context())
				must(t, err)
			})
		})
	}
}

// everyState makes a delivery in each state that can be reached without advancing the clock.
func everyState(b *bed) {
	b.t.Helper()
	planner, tester := b.join("planner"), b.join("tester")
	send := func(body string, hold bool) string {
		d := draft(body, tester)
		d.To[0].Hold = hold
		return planner.send(d).MessageID
	}
	acked, rejected, purged, leased := send("acked", false), send("rejected", false), send("purged", false), send("leased", false)
	tester.inbox(mail.Fetch{})
	for id, no := range map[string]bool{acked: false, rejected: true} {
		_, err := b.Ack(b.t.Context(), tester.Owner, []string{id}, no, "", said)
		must(b.t, err)
	}
	_, err := b.Desk().Purge(b.t.Context(), purged, said)
	must(b.t, err)
	same(b.t, "state", planner.state(leased), mail.Leased)
	_, err = b.Desk().Reject(b.t.Context(), send("refused", true), "", said)
	must(b.t, err)
	send("held", true)
	send("queued", false)
	send("queued too", false)
}

// Texts are deleted a day after the end of a message, those of confirmed messages and all rows
// after a week. The counts of accepted and ended messages stay, and fsck finds no difference.
func TestRetentionLeavesCounts(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		everyState(b)
		b.pass(25 * time.Hour) // all open messages have expired
		b.sweep()
		b.sound()
		same(t, "texts of messages that were final", b.count(`SELECT count(*) FROM messages WHERE body IN ('rejected', 'purged', 'refused')`), 0)
		same(t, "texts of messages that have just expired or were confirmed", b.count(`SELECT count(*) FROM messages WHERE body <> ''`), 5)
		same(t, "rows", b.count(`SELECT count(*) FROM deliveries`), 8)
		b.pass(6 * 24 * time.Hour)
		b.sweep()
		b.sound()
		same(t, "texts", b.count(`SELECT count(*) FROM messages WHERE body <> ''`), 0)
		same(t, "rows", b.count(`SELECT count(*) FROM deliveries`), 4)
		before, err := b.Desk().Totals(t.Context())
		must(t, err)
		b.pass(2 * 24 * time.Hour)
		b.sweep()
		b.sound()
		same(t, "rows", b.count(`SELECT count(*) FROM deliveries`), 0)
		same(t, "messages", b.count(`SELECT count(*) FROM messages`), 0)
		same(t, "peers without a sign of life for a week", b.count(`SELECT count(*) FROM peers WHERE kind = 'agent'`), 0)
		_, err = b.Register(t.Context(), owner("uid:1001", "x"), mail.Registration{Name: "tester"}, nil, said)
		refused(t, err, mail.NameOwned) // a tombstone
		b.pass(31 * 24 * time.Hour)
		b.sweep()
		must(t, b.ForgetSessions(t.Context(), ended))
		b.sound()
		for table, want := range map[string]int64{"peers": 2, "mailboxes": 3, "outboxes": 2, "peer_names": 0, "peer_sessions": 0, "mail_forgotten": 0, "mail_changes": 0} {
			same(t, table, b.count(`SELECT count(*) FROM `+table), want)
		}
		after, err := b.Desk().Totals(t.Context())
		must(t, err)
		same(t, "accepted", after.Accepted, before.Accepted)
		for state, n := range before.States {
			same(t, state, after.States[state], n)
		}
	})
}

func TestTheSweepSaysWhenItIsNeededNext(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		next, err := b.Sweep(t.Context())
		must(t, err)
		d := draft("short", tester)
		d.TTL = 20
		sent := planner.send(d)
		soon, err := b.Sweep(t.Context())
		must(t, err)
		same(t, "next", soon, sent.AcceptedAt+20_000)
		same(t, "with nothing to do", next, sent.AcceptedAt+60_000)
	})
}
