package mail_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// backlog enters and counts n copies of the delivery of the message first, which have been
// final for longer than rows are kept.
func (b *bed) backlog(first string, n int64) {
	b.t.Helper()
	const numbers = `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?2) `
	const id = `substr(message_id, 1, 19) || substr('0000000' || c.i, -7)`
	b.exec(`INSERT INTO messages `+numbers+`SELECT `+id+`, `+id+`, '', 0, kind, priority, subject, body, bytes, sha256, repeats, refs, 1, ttl,
		ack_deadline, sender_id, from_name, from_namespace, from_principal, from_grade, from_epoch FROM messages, c WHERE message_id = ?1`, first, n)
	b.exec(`INSERT INTO deliveries `+numbers+`SELECT `+id+`, peer_id, sender_id, (SELECT last_seq FROM mailboxes m WHERE m.peer_id = deliveries.peer_id) + c.i,
		'acked', c.i, address, from_name, thread_id, lineage, authority, sig, bytes, 1, 1, 0, expires_at, 0, 1, 1, 1, '', '', 0, '', 0, ''
		FROM deliveries, c WHERE message_id = ?1`, first, n)
	b.exec(`UPDATE mailboxes SET accepted = accepted + ?2, acked = acked + ?2, last_seq = last_seq + ?2
		WHERE peer_id = (SELECT peer_id FROM deliveries WHERE message_id = ?1)`, first, n)
}

// A sweep settles open messages first, also beside a backlog of 25,000 rows, and reports that
// more is due until nothing is.
func TestTheSweepKeepsUpWithAnyBacklog(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester, other := b.join("planner"), b.join("tester"), b.join("other")
		short := func(to *agent) string {
			d := draft("short", to)
			d.TTL = 60
			return planner.send(d).MessageID
		}
		first := short(tester)
		const n = 25_000
		b.backlog(first, n)
		late := []string{first, short(other)}
		b.pass(61 * time.Second)
		rounds := 0
		for next := int64(0); next == 0; rounds++ {
			var err error
			next, err = b.Sweep(t.Context())
			must(t, err)
			for _, id := range late {
				same(t, "an expired message after the first round", planner.state(id), mail.Expired)
			}
			if rounds > 10 {
				t.Fatal("it does not come to an end")
			}
		}
		if rounds < 2 {
			t.Errorf("the backlog was done in %d round: the test shows nothing", rounds)
		}
		same(t, "rows that are left", b.count(`SELECT count(*) FROM deliveries WHERE state = 'acked'`), 0)
		same(t, "forgotten", b.count(`SELECT COALESCE(sum(rows_gone), 0) FROM mail_forgotten`), n)
		b.sound()
	})
}

// One sweep settles the expired messages of many mailboxes, with one record for each mailbox.
func TestManyMailboxesAreSweptTogether(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{TTL: time.Second, SenderMessages: 1000}}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		var ids []string
		for i := range 12 {
			to := b.join(fmt.Sprint("n", i))
			for k := range 3 {
				ids = append(ids, planner.send(draft(fmt.Sprint(i, k), to)).MessageID)
			}
		}
		b.later(1100 * time.Millisecond)
		before := b.notes.Load()
		b.sweep()
		for _, id := range ids {
			same(t, "state", planner.state(id), mail.Expired)
		}
		same(t, "records", b.notes.Load()-before, 12)
		b.sound()
	})
}

// The idempotency keys of a peer are bounded in number, the newest are kept, and they end with
// the peer.
func TestIdempotencyKeysAreBounded(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{Keys: 5}}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		send := func(i int) *mail.Sent {
			d := draft(fmt.Sprint("body ", i), tester)
			d.Key, d.Fingerprint = fmt.Sprint("k", i), []byte{byte(i)}
			return planner.send(d)
		}
		var all []*mail.Sent
		for i := range 12 {
			all = append(all, send(i))
			b.later(2 * time.Millisecond) // keys of one moment have no order
		}
		b.sweep()
		same(t, "keys", b.count(`SELECT count(*) FROM idempotency_keys`), 5)
		for i := 7; i < 12; i++ {
			got := send(i)
			same(t, "replay", got.Replay, true)
			same(t, "message", got.MessageID, all[i].MessageID)
		}
		_, err := b.Unregister(t.Context(), planner.Owner, said)
		must(t, err)
		same(t, "keys of a peer that is gone", b.count(`SELECT count(*) FROM idempotency_keys`), 0)
		b.sound()
	})
}

// Former sessions are bounded in number for each principal. One is kept beyond the bound if it
// is the only one that names a living process, which must still count as an agent's.
func TestFormerSessionsAreBounded(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{FormerSessions: 3}}, func(t *testing.T, b *bed) {
		var o mail.Owner
		join := func(session, process string) {
			o = owner("uid:1000", session)
			o.Processes = []string{process}
			_, err := b.Register(t.Context(), o, mail.Registration{Name: "planner"}, sessionsBefore(session), said)
			must(t, err)
			b.later(2 * time.Millisecond)
		}
		join("s0", "boot/lives@1")
		for i := 1; i <= 30; i++ {
			process := "boot/gone@1"
			if i%5 == 0 {
				process = "boot/old@1"
			}
			join(fmt.Sprint("s", i), process)
		}
		alive := map[string]bool{"boot/lives@1": true, "boot/old@1": true}
		must(t, b.ForgetSessions(t.Context(), func(p string) bool { return !alive[p] }))
		// The present one, the newest three, and the only one that names a
		// living process.
		same(t, "sessions", b.count(`SELECT count(*) FROM peer_sessions`), 5)
		agents, err := b.Agents(t.Context())
		must(t, err)
		known := make(map[string]bool)
		for _, p := range agents {
			known[p] = true
		}
		for p := range alive {
			same(t, p+" is an agent's", known[p], true)
		}
		_, err = b.Me(t.Context(), owner("uid:1000", "s29"))
		refused(t, err, mail.Fenced)
		_, err = b.Me(t.Context(), o)
		must(t, err)
		alive = nil
		must(t, b.ForgetSessions(t.Context(), ended))
		same(t, "sessions, once their processes have ended", b.count(`SELECT count(*) FROM peer_sessions`), 4)
		must(t, b.ForgetSessions(t.Context(), nil))
		b.sound()
	})
}

// A process counts as an agent's as long as it lives, although its session has released its
// name or was idle for longer than any row is kept.
func TestAProcessIsAnAgentsForAsLongAsItLives(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		for _, name := range []string{"left", "idle"} {
			o := owner("uid:1000", name)
			o.Processes = []string{"boot/" + name + "@1"}
			_, err := b.Register(t.Context(), o, mail.Registration{Name: name}, nil, said)
			must(t, err)
		}
		_, err := b.Unregister(t.Context(), owner("uid:1000", "left"), said)
		must(t, err)
		lives := func(string) bool { return false }
		for range 4 {
			b.pass(30 * 24 * time.Hour)
			b.sweep()
			must(t, b.ForgetSessions(t.Context(), lives))
			agents, err := b.Agents(t.Context())
			must(t, err)
			slices.Sort(agents)
			equal(t, "processes of agents", agents, "boot/idle@1", "boot/left@1")
		}
		must(t, b.ForgetSessions(t.Context(), ended))
		agents, err := b.Agents(t.Context())
		must(t, err)
		equal(t, "after their end", agents)
		b.sound()
	})
}

// sessionsBefore returns the sessions that have ended when the one named sN begins.
func sessionsBefore(session string) (out []string) {
	var n int
	fmt.Sscanf(session, "s%d", &n)
	for i := range n {
		out = append(out, fmt.Sprint("s", i))
	}
	return out
}

// The text of a confirmed message is kept for the configured time ConfirmedKept, which may be
// longer or shorter than that of an expired message.
func TestTheTextOfAConfirmedMessageHasItsOwnLifetime(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{2 * time.Hour, 72 * time.Hour, 20 * 24 * time.Hour} {
		t.Run(keep.String(), func(t *testing.T) {
			onSQLite(t, mail.Options{Limits: mail.Limits{ConfirmedKept: keep}}, func(t *testing.T, b *bed) {
				planner, tester := b.join("planner"), b.join("tester")
				sent := planner.send(draft("remember this", tester))
				tester.read(tester.inbox(mail.Fetch{}))
				d := draft("nobody reads this", tester)
				d.TTL = 60
				lost := planner.send(d)
				text := func(m *mail.Sent) bool {
					return b.count(`SELECT count(*) FROM messages WHERE message_id = ?1 AND body <> ''`, m.MessageID) == 1
				}
				b.pass(2 * time.Minute)
				b.sweep()
				b.pass(keep - 3*time.Minute)
				b.sweep()
				b.sweep()
				same(t, "the text is there", text(sent), true)
				same(t, "the lost one is there", text(lost), keep < 24*time.Hour)
				if keep < 7*24*time.Hour { // else its peer is gone by now
					_, all, _, err := b.Read(t.Context(), planner.Owner, mail.Query{Text: "remember"})
					must(t, err)
					same(t, "read again", len(all), 1)
				}
				b.pass(2 * time.Minute)
				b.sweep()
				b.sweep()
				same(t, "a text that is over", text(sent), false)
				b.pass(24 * time.Hour)
				b.sweep()
				b.sweep()
				same(t, "a lost text", text(lost), false)
				b.pass(30 * 24 * time.Hour)
				b.sweep()
				b.sweep()
				same(t, "rows", b.count(`SELECT count(*) FROM deliveries`)+b.count(`SELECT count(*) FROM messages`), 0)
				b.sound()
			})
		})
	}
}
