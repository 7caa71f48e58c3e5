package mail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

const (
	sweepBatch  = 200
	sweepRounds = 50 // of batches in one Sweep; the next one goes on
	sweepEvery  = time.Minute
)

// Sweep lets time pass: leases end, messages expire or die, holds end, names
// and rows are forgotten. Several daemons may do it at once: each statement
// asks again whether its row is still due. It returns when the next thing is
// due, at most a minute from now.
func (b *Book) Sweep(ctx context.Context) (next int64, err error) {
	for range sweepRounds {
		due, at, err := b.due(ctx)
		if err != nil {
			return 0, err
		}
		next = at
		if len(due.boxes) == 0 && len(due.final) == 0 {
			break
		}
		next = 0
		if err := b.sweepDue(ctx, due); err != nil {
			return 0, err
		}
	}
	return next, b.tidy(ctx)
}

// dues is a batch of what is due: mailboxes with open deliveries, and final
// deliveries.
type dues struct {
	boxes []string
	final [][2]string // message and peer
}

// due reads a batch, and when the next thing will be.
func (b *Book) due(ctx context.Context) (d dues, next int64, err error) {
	err = b.read(ctx, func(j *job) error {
		d = dues{}
		seen := make(map[string]bool)
		err := j.Each(func(scan func(...any) error) error {
			var message, peer, state string
			err := scan(&message, &peer, &state)
			if isFinalState(state) {
				d.final = append(d.final, [2]string{message, peer})
			} else if !seen[peer] {
				seen[peer] = true
				d.boxes = append(d.boxes, peer)
			}
			return err
		}, `SELECT message_id, peer_id, state FROM deliveries WHERE due <= ?1
			AND EXISTS (SELECT 1 FROM mailboxes m WHERE m.peer_id = deliveries.peer_id) ORDER BY due LIMIT ?2`, j.now, sweepBatch)
		if err != nil {
			return err
		}
		next = j.now + sweepEvery.Milliseconds()
		var soonest int64
		err = j.Row([]any{&soonest}, `SELECT due FROM deliveries WHERE due > ?1 ORDER BY due LIMIT 1`, j.now)
		if errors.Is(err, store.ErrNoRow) {
			return nil
		}
		next = min(next, soonest)
		return err
	})
	return d, next, err
}

func (b *Book) sweepDue(ctx context.Context, d dues) error {
	for _, peer := range d.boxes {
		err := b.write(ctx, func(j *job) error {
			x, err := j.box(peer)
			if errors.Is(err, store.ErrNoRow) {
				return nil // fsck says so
			}
			var settled int
			if err == nil {
				settled, err = j.settle(x, sweepBatch)
			}
			switch {
			case err != nil:
				return err
			case settled == 0: // another daemon was faster
				return errNothing
			}
			return noted(j, b.o.Upkeep, &Upkeep{What: UpkeepSettled, Peer: peer, States: j.states()})
		})
		if err != nil {
			return err
		}
	}
	if len(d.final) == 0 {
		return nil
	}
	return b.write(ctx, func(j *job) error {
		for _, x := range d.final {
			if err := j.forget(x[0], x[1]); err != nil {
				return fmt.Errorf("forgetting a delivery: %w", err)
			}
		}
		return noted(j, b.o.Upkeep, &Upkeep{What: UpkeepForgotten, Rows: int64(len(d.final))})
	})
}

// states counts the deliveries that the job has changed, by their new state.
func (j *job) states() map[string]int {
	out := make(map[string]int)
	for _, c := range j.changes {
		out[c.After]++
	}
	return out
}

// forget removes what is kept of a final delivery: its body first, the row
// later. A count of the row stays, so that the books still balance.
func (j *job) forget(message, peer string) error {
	l := j.b.o.Limits
	n, err := j.Exec(`UPDATE deliveries SET due = changed_at + ?3 WHERE message_id = ?1 AND peer_id = ?2 AND `+isFinal+`
		AND due <= ?4 AND due < changed_at + ?3 AND changed_at + ?3 > ?4`, message, peer, l.RowKept.Milliseconds(), j.now)
	if err != nil {
		return err
	}
	if n == 0 {
		var state string
		var seq int64
		err := j.Row([]any{&state, &seq}, `DELETE FROM deliveries WHERE message_id = ?1 AND peer_id = ?2 AND `+isFinal+` AND due <= ?3
			RETURNING state, seq`, message, peer, j.now)
		if errors.Is(err, store.ErrNoRow) {
			return nil // another daemon was faster
		}
		if err != nil {
			return err
		}
		_, err = j.Exec(`INSERT INTO mail_forgotten (peer_id, state, rows_gone, seqs_gone) VALUES (?1, ?2, 1, ?3)
			ON CONFLICT (peer_id, state) DO UPDATE SET rows_gone = mail_forgotten.rows_gone + 1, seqs_gone = mail_forgotten.seqs_gone + excluded.seqs_gone`,
			peer, state, min(seq, 1))
		if err != nil {
			return err
		}
	}
	return j.forgetBody(message)
}

// forgetBody removes the text of a message when all its deliveries have been
// final for long enough, and the message when none is left. Its row is locked
// first: of two that remove the last two deliveries, the second sees that.
func (j *job) forgetBody(message string) error {
	_, err := j.Exec(`UPDATE messages SET sent_at = sent_at WHERE message_id = ?1`, message)
	if err != nil {
		return err
	}
	_, err = j.Exec(`UPDATE messages SET body = '', subject = '', refs = '' WHERE message_id = ?1 AND body <> ''
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ?1 AND (d.`+isOpen+` OR d.changed_at > ?2))`,
		message, j.now-j.b.o.Limits.BodyKept.Milliseconds())
	if err != nil {
		return err
	}
	_, err = j.Exec(`DELETE FROM messages WHERE message_id = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ?1)`, message)
	return err
}

// tidy removes names, keys, changes and peers whose time is over. Once a minute
// is enough, because every reader checks the time.
func (b *Book) tidy(ctx context.Context) error {
	var idle []string
	due := false
	err := b.read(ctx, func(j *job) error {
		last := b.tidied.Load()
		if due = j.now-last >= sweepEvery.Milliseconds(); !due {
			return nil
		}
		b.tidied.Store(j.now)
		var err error
		idle, err = j.idlePeers()
		return err
	})
	if err != nil || !due {
		return err
	}
	for _, peer := range idle {
		if err := b.write(ctx, func(j *job) error { return j.retireIdle(peer) }); err != nil {
			return err
		}
	}
	for _, step := range []func(*job) (int64, error){(*job).forgetRows, (*job).foldGone} {
		for range sweepRounds {
			var n int64
			err := b.write(ctx, func(j *job) (err error) {
				if n, err = step(j); err != nil {
					return err
				}
				if n == 0 {
					return errNothing
				}
				return noted(j, b.o.Upkeep, &Upkeep{What: UpkeepForgotten, Rows: n})
			})
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

func (j *job) kept() int64 { return j.now - j.b.o.Limits.RowKept.Milliseconds() }

// idlePeers are agents that gave no sign of life for as long as rows are kept,
// and for which no message waits. The names of started agents end with their
// spawn.
func (j *job) idlePeers() ([]string, error) {
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

// retireIdle releases one of them, unless it has come back.
func (j *job) retireIdle(peer string) error {
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
	if _, err = j.release(p, reasonReleased); err != nil {
		return err
	}
	return noted(j, j.b.o.Upkeep, &Upkeep{What: UpkeepReleased, Peer: peer, States: j.states()})
}

// forgetRows deletes a batch of each kind of row whose time is over, and says
// how many that were.
func (j *job) forgetRows() (int64, error) {
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
		{`DELETE FROM peer_sessions WHERE changed_at <= ?1 AND (superseded = 1 OR peer_id = '') AND (principal, session) IN
			(SELECT principal, session FROM peer_sessions WHERE changed_at <= ?1 AND (superseded = 1 OR peer_id = '') LIMIT ?2)`, j.kept()},
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

// past is the mailbox that keeps the counts of peers that are forgotten, so
// that the sums over all never shrink.
const past = "past"

// foldGone forgets one released peer of whom nothing is left but counts.
func (j *job) foldGone() (int64, error) {
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
