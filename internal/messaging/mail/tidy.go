package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/store"
)

// tidy deletes expired names, keys, changes and peers. It runs once a minute, which is
// enough because every reader checks the expiry. more reports that it stopped before all
// was deleted.
func (u upkeep) tidy(ctx context.Context) (more bool, err error) {
	var idle, keyed []string
	due := false
	err = u.b.read(ctx, func(j *job) error {
		last := u.b.tidied.Load()
		if due = j.now-last >= sweepEvery.Milliseconds(); !due {
			return nil
		}
		u.b.tidied.Store(j.now)
		var err error
		if idle, err = j.sweeping.idlePeers(); err == nil {
			keyed, err = j.sweeping.withManyKeys()
		}
		return err
	})
	if err != nil || !due {
		return false, err
	}
	for _, peer := range idle {
		if err := u.b.write(ctx, func(j *job) error { return j.sweeping.retireIdle(peer) }); err != nil {
			return false, err
		}
	}
	steps := []func(*job) (int64, error){
		func(j *job) (int64, error) { return j.sweeping.forgetRows() },
		func(j *job) (int64, error) { return j.sweeping.foldGone() },
	}
	for _, peer := range keyed {
		steps = append(steps, func(j *job) (int64, error) { return j.sweeping.forgetKeys(peer) })
	}
	for _, step := range steps {
		left, err := u.repeat(ctx, step)
		if err != nil {
			return false, err
		}
		more = more || left
	}
	if more {
		u.b.tidied.Store(0) // the next Sweep continues
	}
	return more, nil
}

// repeat runs a step until it finds nothing more to delete; more reports that it stopped
// at sweepRounds.
func (u upkeep) repeat(ctx context.Context, step func(*job) (int64, error)) (more bool, err error) {
	for range sweepRounds {
		var n int64
		err := u.b.write(ctx, func(j *job) (err error) {
			if n, err = step(j); err != nil {
				return err
			}
			if n == 0 {
				return errNothing
			}
			return noted(j, u.b.o.Upkeep, &Upkeep{What: UpkeepForgotten, Rows: n})
		})
		if err != nil || n == 0 {
			return false, err
		}
	}
	return true, nil
}

func (j sweeping) kept() int64 { return j.now - j.b.o.Limits.RowKept.Milliseconds() }

// idlePeers returns agents without a sign of life for as long as rows are kept, and
// without open messages. Spawned agents are excluded: their names end with their spawn.
func (j sweeping) idlePeers() ([]string, error) {
	var out []string
	err := j.Each(func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		out = append(out, id)
		return err
	}, `SELECT p.peer_id FROM peers p JOIN mailboxes m ON m.peer_id = p.peer_id WHERE p.kind = 'agent' AND p.spawn_id = ''
		AND p.lease_until <= ?1 AND p.last_seen <= ?2 AND m.held + m.queued + m.leased = 0 LIMIT ?3`, j.now, j.kept(), sweepBatch)
	return out, err
}

// retireIdle releases an idle peer, unless it has come back or was sent a message since
// idlePeers.
func (j sweeping) retireIdle(peer string) error {
	var p Peer
	dest, done := p.places(j.now)
	err := j.Row(dest, `UPDATE peers SET kind = kind WHERE peer_id = ?1 AND kind = 'agent' AND lease_until <= ?2 AND last_seen <= ?3
		RETURNING `+peerColumns, peer, j.now, j.kept())
	if errors.Is(err, store.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	done()
	x, err := j.mailboxes.box(peer)
	if err == nil && x.tally.open() > 0 {
		return errNothing
	}
	if err != nil {
		return err
	}
	if _, err = j.releasing.release(p, reasonReleased); err != nil {
		return err
	}
	return noted(j.job, j.b.o.Upkeep, &Upkeep{What: UpkeepReleased, Peer: peer, States: j.states(peer)})
}

// forgetRows deletes a batch of each kind of expired row, and returns how many it
// deleted.
func (j sweeping) forgetRows() (int64, error) {
	l := j.b.o.Limits
	kept := (j.now - l.RowKept.Milliseconds()) << tickBits << slotBits
	steps := []struct {
		query string
		until int64
	}{
		{`DELETE FROM idempotency_keys WHERE expires_at <= ?1 AND (principal, peer_id, tool, idempotency_key) IN
			(SELECT principal, peer_id, tool, idempotency_key FROM idempotency_keys WHERE expires_at <= ?1 LIMIT ?2)`, j.now},
		{`DELETE FROM peer_names WHERE kind <> 'peer' AND expires_at <= ?1 AND (namespace, name) IN
			(SELECT namespace, name FROM peer_names WHERE kind <> 'peer' AND expires_at <= ?1 LIMIT ?2)`, j.now},
		// Those that name a process are ForgetSessions' to delete.
		{`DELETE FROM peer_sessions WHERE changed_at <= ?1 AND processes = '' AND (superseded = 1 OR peer_id = '') AND (principal, session) IN
			(SELECT principal, session FROM peer_sessions WHERE changed_at <= ?1 AND processes = '' AND (superseded = 1 OR peer_id = '') LIMIT ?2)`, j.kept()},
		{`DELETE FROM mail_changes WHERE id IN (SELECT id FROM mail_changes WHERE id <= ?1 ORDER BY id LIMIT ?2)`, max(0, kept)},
		{`DELETE FROM spawns WHERE spawn_id IN (SELECT spawn_id FROM spawns WHERE ended_at > 0 AND ended_at <= ?1 LIMIT ?2)`, j.kept()},
	}
	var all int64
	for _, s := range steps {
		n, err := j.Exec(s.query, s.until, sweepBatch)
		if err != nil {
			return all, fmt.Errorf("forgetting rows: %w", err)
		}
		all += n
	}
	return all, nil
}

// withManyKeys returns the peers that have more idempotency keys than are kept.
func (j sweeping) withManyKeys() ([]string, error) {
	var out []string
	err := j.Each(func(scan func(...any) error) error {
		var peer string
		err := scan(&peer)
		out = append(out, peer)
		return err
	}, `SELECT peer_id FROM idempotency_keys GROUP BY peer_id HAVING count(*) > ?1 LIMIT ?2`, j.b.o.Limits.Keys, sweepBatch)
	return out, err
}

// forgetKeys deletes a batch of a peer's oldest keys beyond the limit.
func (j sweeping) forgetKeys(peer string) (int64, error) {
	n, err := j.Exec(`DELETE FROM idempotency_keys WHERE (principal, peer_id, tool, idempotency_key) IN
		(SELECT principal, peer_id, tool, idempotency_key FROM idempotency_keys WHERE peer_id = ?1
		ORDER BY expires_at DESC LIMIT ?2 OFFSET ?3)`, peer, sweepBatch, j.b.o.Limits.Keys)
	if err != nil {
		return 0, fmt.Errorf("forgetting idempotency keys: %w", err)
	}
	return n, nil
}

// past is the id of the mailbox that keeps the counts of deleted peers, so that the sums
// over all mailboxes never shrink.
const past = "past"

// foldGone deletes one released peer of which only counts are left, and adds these to
// past.
func (j sweeping) foldGone() (int64, error) {
	var peer string
	err := j.Row([]any{&peer}, `SELECT p.peer_id FROM peers p JOIN mailboxes m ON m.peer_id = p.peer_id
		WHERE p.kind = 'gone' AND p.last_seen <= ?1
		AND m.accepted = COALESCE((SELECT sum(f.rows_gone) FROM mail_forgotten f WHERE f.peer_id = p.peer_id), 0)
		AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.parent_id = p.peer_id AND s.ended_at = 0) LIMIT 1`, j.kept())
	if errors.Is(err, store.ErrNoRow) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := j.Exec(`DELETE FROM peers WHERE peer_id = ?1 AND kind = 'gone'`, peer)
	if err != nil || n == 0 {
		return n, err
	}
	_, err = j.Exec(`INSERT INTO mailboxes (peer_id, active, principal, inbound, paused, ancestors, last_seq, bytes, accepted,
			held, queued, leased, acked, rejected, expired, dead, refused, purged, evicted)
		SELECT '`+past+`', 0, '', '', 0, '', 0, 0, accepted, 0, 0, 0, acked, rejected, expired, dead, refused, purged, evicted
		FROM mailboxes WHERE peer_id = ?1
		ON CONFLICT (peer_id) DO UPDATE SET accepted = mailboxes.accepted + excluded.accepted, acked = mailboxes.acked + excluded.acked,
			rejected = mailboxes.rejected + excluded.rejected, expired = mailboxes.expired + excluded.expired,
			dead = mailboxes.dead + excluded.dead, refused = mailboxes.refused + excluded.refused,
			purged = mailboxes.purged + excluded.purged, evicted = mailboxes.evicted + excluded.evicted`, peer)
	for _, query := range []string{`DELETE FROM mailboxes WHERE peer_id = ?1`, `DELETE FROM outboxes WHERE peer_id = ?1`, `DELETE FROM mail_forgotten WHERE peer_id = ?1`} {
		if err == nil {
			_, err = j.Exec(query, peer)
		}
	}
	return n, err
}
