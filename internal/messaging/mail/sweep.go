package mail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

const (
	sweepBatch  = 200
	sweepRounds = 50 // batches in one Sweep; the bound lets its caller do other work in between
	sweepEvery  = time.Minute
)

// Sweep applies the time: leases end, messages expire or become dead, holds end, names
// and rows are deleted. It handles open deliveries before final ones. Several daemons may
// run it at once: each statement checks again that its row is due. It returns the time at
// which the next delivery is due, at most a minute from now; 0: more is due already.
func (b *Book) Sweep(ctx context.Context) (next int64, err error) {
	for range sweepRounds {
		due, at, err := upkeep{b}.due(ctx)
		if err != nil {
			return 0, err
		}
		next = at
		if len(due.boxes) == 0 && len(due.final) == 0 {
			break
		}
		next = 0
		if err := (upkeep{b}).sweepDue(ctx, due); err != nil {
			return 0, err
		}
	}
	more, err := upkeep{b}.tidy(ctx)
	if more {
		next = 0
	}
	return next, err
}

// dues is a batch of due deliveries: the mailboxes of open ones, and the final ones.
type dues struct {
	boxes []string
	final [][2]string // message and peer
}

// hasBox excludes deliveries without a mailbox, which Fsck reports.
const hasBox = ` AND EXISTS (SELECT 1 FROM mailboxes m WHERE m.peer_id = deliveries.peer_id)`

// upkeep is the part of a book that works without a caller, by the clock.
type upkeep struct{ b *Book }

// due reads a batch, and the time at which the next delivery is due.
func (u upkeep) due(ctx context.Context) (d dues, next int64, err error) {
	err = u.b.read(ctx, func(j *job) (err error) {
		d = dues{}
		open, err := j.sweeping.pairs(`SELECT peer_id, peer_id FROM deliveries WHERE `+isOpen+` AND due <= ?1`+hasBox+` ORDER BY due LIMIT ?2`, j.now, sweepBatch)
		if err != nil {
			return err
		}
		seen := make(map[string]bool)
		for _, p := range open {
			if !seen[p[0]] {
				seen[p[0]] = true
				d.boxes = append(d.boxes, p[0])
			}
		}
		if left := sweepBatch - len(open); left > 0 {
			d.final, err = j.sweeping.pairs(`SELECT message_id, peer_id FROM deliveries WHERE `+isFinal+` AND due <= ?1`+hasBox+` ORDER BY due LIMIT ?2`, j.now, left)
			if err != nil {
				return err
			}
		}
		next, err = j.sweeping.soonest()
		return err
	})
	return d, next, err
}

// pairs returns the rows of a query that selects two texts.
func (j sweeping) pairs(query string, args ...any) (all [][2]string, err error) {
	err = j.Each(func(scan func(...any) error) error {
		var p [2]string
		err := scan(&p[0], &p[1])
		all = append(all, p)
		return err
	}, query, args...)
	return all, err
}

// soonest returns when the next delivery is due, at most a minute from now.
func (j sweeping) soonest() (int64, error) {
	next := j.now + sweepEvery.Milliseconds()
	for _, kind := range []string{isOpen, isFinal} {
		var at int64
		err := j.Row([]any{&at}, `SELECT due FROM deliveries WHERE `+kind+` AND due > ?1 ORDER BY due LIMIT 1`, j.now)
		if errors.Is(err, store.ErrNoRow) {
			continue
		}
		if err != nil {
			return 0, err
		}
		next = min(next, at)
	}
	return next, nil
}

func (u upkeep) sweepDue(ctx context.Context, d dues) error {
	if len(d.boxes) > 0 {
		if err := u.b.write(ctx, func(j *job) error { return j.sweeping.settleAll(d.boxes) }); err != nil {
			return err
		}
	}
	if len(d.final) == 0 {
		return nil
	}
	return u.b.write(ctx, func(j *job) error {
		for _, x := range d.final {
			if err := j.sweeping.forget(x[0], x[1]); err != nil {
				return fmt.Errorf("forgetting a delivery: %w", err)
			}
		}
		return noted(j, u.b.o.Upkeep, &Upkeep{What: UpkeepForgotten, Rows: int64(len(d.final))})
	})
}

// settleAll settles several mailboxes, at most one batch of deliveries in all.
// errNothing: another daemon did it first.
func (j sweeping) settleAll(peers []string) error {
	if err := j.mailboxes.boxesOf(peers...); err != nil {
		return err
	}
	left := sweepBatch
	for _, peer := range slices.Sorted(maps.Keys(j.boxes)) {
		n, err := j.mailboxes.settle(j.boxes[peer], left)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if err := noted(j.job, j.b.o.Upkeep, &Upkeep{What: UpkeepSettled, Peer: peer, States: j.states(peer)}); err != nil {
			return err
		}
		if left -= n; left <= 0 {
			return nil
		}
	}
	if left == sweepBatch {
		return errNothing
	}
	return nil
}

// states counts the deliveries of a peer that the job has changed, by their new state.
func (j sweeping) states(peer string) map[string]int {
	out := make(map[string]int)
	for _, c := range j.changes {
		if c.PeerID == peer {
			out[c.After]++
		}
	}
	return out
}

// forget handles a final delivery that is due: it deletes the text of its message first,
// and its row later. The row stays in the count of deleted rows, so that the counters of
// the mailbox still add up.
func (j sweeping) forget(message, peer string) error {
	l := j.b.o.Limits
	const kept = `changed_at + CASE WHEN state = 'acked' THEN ?4 ELSE ?3 END`
	n, err := j.Exec(`UPDATE deliveries SET due = `+kept+` WHERE message_id = ?1 AND peer_id = ?2 AND `+isFinal+`
		AND due <= ?5 AND due < `+kept+` AND `+kept+` > ?5`, message, peer, l.row("").Milliseconds(), l.row(Acked).Milliseconds(), j.now)
	if err != nil {
		return err
	}
	if n == 0 {
		var state string
		var seq int64
		err := j.Row([]any{&state, &seq}, `DELETE FROM deliveries WHERE message_id = ?1 AND peer_id = ?2 AND `+isFinal+` AND due <= ?3
			RETURNING state, seq`, message, peer, j.now)
		if errors.Is(err, store.ErrNoRow) {
			return nil // another daemon deleted it first
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

// forgetBody deletes the text of a message when all its deliveries have been final for
// long enough, and the message when it has no delivery. It locks the message first: when
// two jobs delete the last two deliveries, the second sees that none is left.
func (j sweeping) forgetBody(message string) error {
	_, err := j.Exec(`UPDATE messages SET sent_at = sent_at WHERE message_id = ?1`, message)
	if err != nil {
		return err
	}
	_, err = j.Exec(`UPDATE messages SET body = '', subject = '', refs = '' WHERE message_id = ?1 AND body <> ''
		AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ?1
			AND (`+isOpen+` OR d.changed_at > CASE WHEN d.state = 'acked' THEN ?3 ELSE ?2 END))`,
		message, j.now-j.b.o.Limits.BodyKept.Milliseconds(), j.now-j.b.o.Limits.ConfirmedKept.Milliseconds())
	if err != nil {
		return err
	}
	_, err = j.Exec(`DELETE FROM messages WHERE message_id = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ?1)`, message)
	return err
}
