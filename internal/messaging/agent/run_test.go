package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/test/doortest"
)

// The first sweep of the mailboxes is due at once, although a later one was set before it.
// After that the alarm rings at the earliest time that it was set to.
func TestTheFirstSweepIsNotDelayed(t *testing.T) {
	t.Parallel()
	var a alarm
	now := time.Now()
	a.by(now.Add(time.Hour))
	if !a.rung(now, now.Add(time.Minute)) {
		t.Fatal("the first sweep waits for a later time")
	}
	a.by(now.Add(2 * time.Minute))
	if a.rung(now.Add(59*time.Second), now) || !a.rung(now.Add(time.Minute), now.Add(time.Hour)) {
		t.Error("the alarm rings at another time than the earliest that it was set to")
	}
}

// A backlog that is larger than one sweep is swept by further sweeps without a pause.
func TestABacklogIsSweptWithoutAPause(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a := h.legacy("a").registered("a")
	h.legacy("b").registered("b")
	id := a.call("send", m{"to": "b", "body": "x"}).want("").str("message_id")
	for _, q := range []string{
		`INSERT INTO deliveries WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 15000)
			SELECT substr(message_id, 1, 19) || substr('0000000' || c.i, -7), peer_id, sender_id, 1 + c.i, 'acked', 1, address, from_name,
			thread_id, lineage, authority, sig, bytes, 1, 1, 0, expires_at, 0, 1, 1, 1, '', '', 0, '', 0, '' FROM deliveries, c WHERE message_id = '` + id + `'`,
		`UPDATE mailboxes SET accepted = accepted + 15000, acked = acked + 15000, last_seq = last_seq + 15000
			WHERE peer_id = (SELECT peer_id FROM deliveries WHERE message_id = '` + id + `')`,
	} {
		if err := h.db.Write(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(q); return err }); err != nil {
			t.Fatal(err)
		}
	}
	h.s.sweepAt.mu.Lock()
	h.s.sweepAt.at = time.Now()
	h.s.sweepAt.mu.Unlock()
	doortest.Until(t, 30*time.Second*slack, "no delivery is left", func() bool {
		left := int64(1)
		err := h.db.Read(t.Context(), func(tx *store.Tx) error {
			return tx.Row([]any{&left}, `SELECT count(*) FROM deliveries WHERE state = 'acked'`)
		})
		if err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}

// A sweep that fails is repeated soon: leases and holds that end wake agents.
func TestAFailedSweepIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 20 * time.Millisecond
	rename := func(from, to string) {
		if err := h.db.Write(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(`ALTER TABLE ` + from + ` RENAME TO ` + to); return err }); err != nil {
			t.Fatal(err)
		}
	}
	rename("deliveries", "elsewhere")
	h.s.sweepAt.by(time.Now())
	await(t, "a second sweep fails", func() bool { return strings.Count(h.logs.String(), "the mailboxes were not swept") > 1 })
	rename("elsewhere", "deliveries")
	await(t, "a sweep succeeds", func() bool {
		h.s.sweepAt.mu.Lock()
		defer h.s.sweepAt.mu.Unlock()
		return time.Until(h.s.sweepAt.at) > sweepEvery/2
	})
}
