package mail

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// resultBytes bounds the part of a result that a message carries; the rest is a ref.
const resultBytes = 64 << 10

// SpawnRuns marks a spawn as running, and reports the start to the parent. A second call
// changes nothing and makes no record.
func (b *Book) SpawnRuns(ctx context.Context, id string, note Note[Spawn]) error {
	return b.write(ctx, func(j *job) error {
		s := &Spawn{}
		dest, done := s.places()
		err := j.Row(dest, `UPDATE spawns SET state = 'running', started_at = ?2 WHERE spawn_id = ?1 AND state = 'starting' RETURNING `+spawnColumns, id, j.now)
		if errors.Is(err, store.ErrNoRow) {
			if _, err = j.spawning.spawn(id); errors.Is(err, store.ErrNoRow) {
				return refuse(UnknownSpawn)
			}
			return err
		}
		if err != nil {
			return fmt.Errorf("noting a start: %w", err)
		}
		done()
		j.signal(TopicSpawn(id))
		if _, err = j.spawning.report(s, "event", fmt.Sprintf("%s has started. Spawn %s.", s.Name, s.ID), nil); err != nil {
			return err
		}
		return noted(j, note, s)
	})
}

// EndSpawn marks a spawn as ended, and reports it to the parent with an event and, if the
// parent wants it, the result; both are messages of the broker. The child's session is
// dead from then on: its name is free for another child of the same parent, and its
// unacknowledged mail goes to the parent. A second call changes nothing and makes no
// record.
func (b *Book) EndSpawn(ctx context.Context, id string, e SpawnEnd, note Note[Spawn]) (*Spawn, error) {
	switch e.State {
	case Exited, Killed, TimedOut, OverBudget, Failed:
	default:
		return nil, refuse(InvalidArgument)
	}
	var out *Spawn
	err := b.write(ctx, func(j *job) error {
		var err error
		out, err = j.spawning.spawn(id)
		switch {
		case errors.Is(err, store.ErrNoRow):
			return refuse(UnknownSpawn)
		case err != nil, out.EndedAt > 0:
			return err
		}
		ended, err := j.spawning.endSpawn(out, e)
		switch {
		case err != nil:
			return err
		case !ended:
			return errNothing
		}
		return noted(j, note, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// endSpawn ends a spawn. It locks the child's peer first, as the child's own acts do.
// false: it had ended already.
func (j spawning) endSpawn(s *Spawn, e SpawnEnd) (bool, error) {
	child, err := j.releasing.agent(s.Peer)
	var gone *Error
	if err != nil && !errors.As(err, &gone) {
		return false, err
	}
	code, known := 0, e.ExitCode != nil
	if known {
		code = *e.ExitCode
	}
	dest, done := s.places()
	err = j.Row(dest, `UPDATE spawns SET state = ?2, ended_at = ?3, exit_known = ?4, exit_code = ?5
		WHERE spawn_id = ?1 AND ended_at = 0 RETURNING `+spawnColumns, s.ID, e.State, j.now, known, code)
	if errors.Is(err, store.ErrNoRow) { // another job ended it first
		again, err := j.spawn(s.ID)
		if err == nil {
			*s = *again
		}
		return false, err
	}
	if err != nil {
		return false, fmt.Errorf("noting an end: %w", err)
	}
	done()
	if _, err := j.Exec(`UPDATE mail_nodes SET spawns_open = spawns_open - 1 WHERE node = ?1 AND spawns_open > 0`, s.Node); err != nil {
		return false, err
	}
	if gone == nil {
		if err := j.endChild(child, s); err != nil {
			return false, err
		}
	}
	j.signal(TopicSpawn(s.ID))
	return true, j.tellEnd(s, e)
}

// tellEnd sends the event and the result to the parent.
func (j spawning) tellEnd(s *Spawn, e SpawnEnd) error {
	text := fmt.Sprintf("%s has ended: %s. Spawn %s.", s.Name, s.State, s.ID)
	if s.ExitCode != nil {
		text = fmt.Sprintf("%s has ended: %s, status %d. Spawn %s.", s.Name, s.State, *s.ExitCode, s.ID)
	}
	if _, err := j.report(s, "event", text, nil); err != nil {
		return err
	}
	if !s.WantResult || (e.Output == "" && len(e.Rest) == 0) {
		return nil
	}
	m := Message{Body: e.Output}
	m.cut(resultBytes)
	if m.Body == "" {
		m.Body = "(The output is behind the ref.)"
	}
	id, err := j.report(s, "result", m.Body, e.Rest)
	if err != nil || id == "" {
		return err
	}
	s.ResultMessage = id
	_, err = j.Exec(`UPDATE spawns SET result_message = ?2 WHERE spawn_id = ?1`, s.ID, id)
	return err
}

// report sends a message of the broker to the parent of a spawn, in the thread whose id
// is the spawn's. If the parent is gone, nothing is sent and the id is empty.
func (j spawning) report(s *Spawn, kind, body string, refs []Ref) (string, error) {
	var principal string
	err := j.Row([]any{&principal}, `SELECT principal FROM mailboxes WHERE peer_id = ?1 AND active = 1`, s.Parent)
	if errors.Is(err, store.ErrNoRow) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(body))
	m := outgoing{id: j.b.ids.next(j.now), sentAt: j.now, thread: s.ID, from: j.b.broker, kind: kind, body: body, sha256: sum[:],
		bytes: int64(len(body)), ttl: int64(j.b.o.Limits.TTL / time.Millisecond)}
	if len(refs) > 0 {
		text, err := json.Marshal(refs)
		if err != nil {
			return "", err
		}
		m.refs = string(text)
	}
	_, err = j.placing.place(m, []Recipient{{To: j.name(s.Parent), PeerID: s.Parent, Principal: principal}})
	var e *Error
	if errors.As(err, &e) && e.Code == UnknownRecipient {
		return "", nil // released or transferred at this moment
	}
	if err != nil {
		return "", err
	}
	return m.id, nil
}

// name returns the name of a peer, as the address of a message that was not addressed by
// name; the id if there is none.
func (j spawning) name(peer string) string {
	var name string
	if err := j.Row([]any{&name}, `SELECT name FROM peers WHERE peer_id = ?1`, peer); err != nil {
		return peer
	}
	return name
}

// endChild releases the peer of an ended spawn. Its unacknowledged messages go to its
// parent only: the child's delivery expires, of which the sender gets a notice, and a new
// delivery to the parent begins.
func (j spawning) endChild(child Peer, s *Spawn) error {
	if err := j.releasing.bury(child); err != nil {
		return fmt.Errorf("releasing a child: %w", err)
	}
	if err := j.mailboxes.boxesOf(child.ID, s.Parent); err != nil {
		return fmt.Errorf("locking the mailboxes of child and parent: %w", err)
	}
	if err := j.releasing.closeBox(child.ID); err != nil {
		return err
	}
	own, parent := j.boxes[child.ID], j.boxes[s.Parent]
	if parent == nil {
		parent = &box{}
	}
	waiting, err := j.mailboxes.rows(`peer_id = ?1 AND `+isOpen+` ORDER BY seq`, child.ID)
	if err != nil {
		return err
	}
	for _, r := range waiting {
		reason := reasonReleased
		// The parent does not need its own messages back, and held messages were
		// never let through.
		if parent.active && r.state != Held && r.sender != parent.peer && r.expiresAt > j.now {
			passed, err := j.passOn(r, child, parent)
			if err != nil {
				return err
			}
			if passed {
				reason = reasonInherited
			}
		}
		if err := j.mailboxes.end(own, r, Expired, reason, ""); err != nil {
			return err
		}
	}
	return nil
}

// passOn begins a delivery of a message to the parent of its recipient, as if its sender
// had written to the parent: the parent's inbound mode and limits apply. It passes no
// message of which the parent is a recipient already, and none with an authority, which
// was given to the child alone. It reports whether it did.
func (j spawning) passOn(r row, child Peer, parent *box) (bool, error) {
	var there int
	err := j.Row([]any{&there}, `SELECT count(*) FROM deliveries WHERE message_id = ?1 AND peer_id = ?2`, r.message, parent.peer)
	if err != nil || there > 0 {
		return false, err
	}
	m, authority, err := j.resent(r.message, child.ID)
	if err != nil || authority != AuthorityNone || m.from.kind != kindAgent {
		return false, err
	}
	s, err := j.placing.takeSeat(m, Recipient{To: r.address, PeerID: parent.peer, Principal: parent.principal})
	if errors.Is(err, store.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reserving a place for an inherited message: %w", err)
	}
	m.ttl = r.expiresAt - j.now
	_, err = j.placing.deliver(m, s)
	return true, err
}

// resent reads a message as it was sent, with the authority of its delivery to peer.
func (j spawning) resent(id, peer string) (m outgoing, authority string, err error) {
	var kind string
	m.id = id
	err = j.Row([]any{&m.thread, &m.replyTo, &m.depth, &m.kind, &m.subject, &m.body, &m.bytes, &m.sha256, &m.refs, &m.ttl,
		&m.sentAt, &m.from.id, &m.from.name, &m.from.namespace, &m.from.principal, &m.from.grade, &m.from.epoch, &authority},
		`SELECT m.thread_id, m.reply_to, m.depth, m.kind, m.subject, m.body, m.bytes, m.sha256, m.refs, m.ttl,
		m.sent_at, m.sender_id, m.from_name, m.from_namespace, m.from_principal, m.from_grade, m.from_epoch, d.authority
		FROM messages m JOIN deliveries d ON d.message_id = m.message_id WHERE m.message_id = ?1 AND d.peer_id = ?2`, id, peer)
	if err != nil {
		return m, "", fmt.Errorf("reading a message again: %w", err)
	}
	var ancestors string
	err = j.Row([]any{&kind, &ancestors}, `SELECT kind, ancestors FROM peers WHERE peer_id = ?1`, m.from.id)
	if err != nil && !errors.Is(err, store.ErrNoRow) {
		return m, "", err
	}
	m.from.kind, m.from.ancestors = kind, splitIDs(ancestors)
	if kind == kindGone || kind == "" {
		m.from.kind = kindAgent
	}
	return m, authority, nil
}
