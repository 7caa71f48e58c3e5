package mail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

// BeginSpawn enters a spawn of o's peer and binds its name parent/child to the principal
// spawn:ID, which no process has yet. Errors: NotRegistered, Fenced, DepthLimit,
// ChildLimit, Budget, NameOwned, NameInvalid, NameReserved, PeerLimit, InvalidArgument,
// IdempotencyConflict.
//
// ChildLimit is also the answer while the parent has too many unread messages of the
// broker: these are never refused for lack of room, so they are bounded here.
func (b *Book) BeginSpawn(ctx context.Context, o Owner, d SpawnDraft, note Note[Spawn]) (*Spawn, error) {
	if d.MaxSeconds < 1 || d.MaxChildren < 0 || d.Launcher == "" {
		return nil, refuse(InvalidArgument)
	}
	if d.Name != "" {
		if err := checkName(d.Name); err != nil {
			return nil, err
		}
	}
	return perform(ctx, b, note, func(j *job) (*Spawn, error) {
		p, err := j.directory.fence(o)
		if err != nil {
			return nil, err
		}
		return j.spawning.beginSpawn(p, d)
	})
}

func (j spawning) beginSpawn(p Peer, d SpawnDraft) (*Spawn, error) {
	if d.Key != "" {
		var before Spawn
		replay, err := j.idempotency.key(p.sender(kindAgent), "spawn", d.Key, d.Fingerprint, &before)
		if err != nil {
			return nil, err
		}
		if replay {
			s, err := j.spawn(before.ID)
			if errors.Is(err, store.ErrNoRow) {
				s, err = &before, nil
			}
			if err == nil {
				s.Replay = true
			}
			return s, err
		}
	}
	s := &Spawn{ID: j.b.ids.next(j.now), Launcher: d.Launcher, Node: j.b.o.Node, Parent: p.ID, ParentPrincipal: p.Principal,
		ParentSession: p.Session, parentSpawn: p.Spawn, Namespace: p.Namespace, State: Starting, Rights: d.Rights,
		MaxSeconds: d.MaxSeconds, MaxChildren: d.MaxChildren, MaxMessages: d.MaxMessages, Depth: len(p.Ancestors) + 1,
		WantResult: d.WantResult, KeepOnExit: d.KeepOnExit, CreatedAt: j.now, ExpiresAt: j.now + int64(d.MaxSeconds)*1000}
	if err := j.bounds(p, s); err != nil {
		return nil, err
	}
	if err := j.enterChild(p, s, d.Name); err != nil {
		return nil, err
	}
	if err := j.insertSpawn(s); err != nil {
		return nil, err
	}
	j.signal(TopicSpawn(s.ID))
	j.signal(TopicPeers)
	if d.Key != "" {
		return s, j.idempotency.keep(p.sender(kindAgent), "spawn", d.Key, s)
	}
	return s, nil
}

// bounds checks a spawn against the limits and its parent's remaining budget. The
// parent's fence makes its own counts exact; the open spawns of a node are counted in one
// row.
func (j spawning) bounds(p Peer, s *Spawn) error {
	l := j.b.o.Limits
	if s.Depth > l.SpawnDepth {
		return refuse(DepthLimit)
	}
	if p.Spawn != "" {
		if err := j.within(p.Spawn, s); err != nil {
			return err
		}
	}
	var open, unread int
	err := j.Row([]any{&open, &unread}, `SELECT (SELECT count(*) FROM spawns WHERE parent_id = ?1 AND ended_at = 0),
		(SELECT count(*) FROM deliveries WHERE peer_id = ?1 AND sender_id = ?2 AND `+isOpen+`)`, p.ID, j.b.broker.id)
	if err != nil {
		return fmt.Errorf("counting spawns: %w", err)
	}
	if open >= l.ChildrenOpen || unread >= l.SenderMessages {
		return &Error{Code: ChildLimit, Retry: fullRetry}
	}
	n, err := j.Exec(`UPDATE mail_nodes SET spawns_open = spawns_open + 1 WHERE node = ?1 AND spawns_open < ?2`, s.Node, l.SpawnsOpen)
	if err == nil && n == 0 {
		return &Error{Code: ChildLimit, Retry: fullRetry}
	}
	return err
}

// within reduces a spawn to the remaining budget of its parent's own spawn, and charges
// it to every spawn above.
func (j spawning) within(parent string, s *Spawn) error {
	above, err := j.spawn(parent)
	if err != nil {
		return fmt.Errorf("reading the parent's spawn: %w", err)
	}
	if above.EndedAt > 0 || above.ExpiresAt <= j.now {
		return refuse(Budget)
	}
	s.ExpiresAt = min(s.ExpiresAt, above.ExpiresAt)
	s.MaxSeconds = int((s.ExpiresAt - j.now + 999) / 1000)
	if above.MaxMessages >= 0 {
		left := max(0, above.MaxMessages-above.Messages)
		if s.MaxMessages < 0 || s.MaxMessages > left {
			s.MaxMessages = left
		}
	}
	s.MaxChildren = min(s.MaxChildren, max(0, above.MaxChildren-above.Children-1))
	return j.chargeAll(parent, `UPDATE spawns SET children = children + 1
		WHERE spawn_id = ?1 AND children < max_children RETURNING parent_spawn`)
}

// charge takes one message from the budget of a spawn and of those above it.
func (j spawning) charge(id string) error {
	return j.chargeAll(id, `UPDATE spawns SET messages = messages + 1
		WHERE spawn_id = ?1 AND (max_messages < 0 OR messages < max_messages) RETURNING parent_spawn`)
}

// chargeAll runs query on a spawn and on each one above it. All jobs lock them in that
// upward order.
func (j spawning) chargeAll(id, query string) error {
	for id != "" {
		err := j.Row([]any{&id}, query, id)
		if errors.Is(err, store.ErrNoRow) {
			return refuse(Budget)
		}
		if err != nil {
			return fmt.Errorf("charging a budget: %w", err)
		}
	}
	return nil
}

// enterChild binds the name of a child. The name of an earlier, ended child of
// the same parent may be reused; any other name in use may not.
func (j spawning) enterChild(p Peer, s *Spawn, name string) error {
	principal := Qualify(s.Node, "spawn:"+s.ID)
	s.Peer = j.b.ids.next(j.now)
	for i := 0; ; i++ {
		s.Name = p.Name + "/" + cmp.Or(name, madeName(s.Launcher[:min(len(s.Launcher), 50)]))
		var taken string
		err := j.Row([]any{&taken}, `INSERT INTO peer_names (namespace, name, kind, peer_id, principal, parent, expires_at)
			VALUES (?1, ?2, 'peer', ?3, ?4, ?5, 0)
			ON CONFLICT (namespace, name) DO UPDATE SET kind = 'peer', peer_id = excluded.peer_id, principal = excluded.principal,
				parent = excluded.parent, expires_at = 0
			WHERE peer_names.kind <> 'peer' AND (peer_names.expires_at <= ?6
				OR (peer_names.kind = 'tombstone' AND peer_names.parent = excluded.parent))
			RETURNING peer_id`, s.Namespace, s.Name, s.Peer, principal, p.ID, j.now)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrNoRow) {
			return fmt.Errorf("naming a child: %w", err)
		}
		if name != "" || i == 5 {
			return &Error{Code: NameOwned, Retry: time.Second}
		}
	}
	if err := j.registering.enterSpace(s.Namespace); err != nil {
		return err
	}
	return j.registering.insertPeer(Peer{ID: s.Peer, Name: s.Name, Namespace: s.Namespace, Principal: principal, Node: s.Node, Grade: "verified",
		Inbound: InboundPolicy, Spawn: s.ID, Ancestors: append([]string{p.ID}, p.Ancestors...)}, kindAgent)
}

func (j spawning) insertSpawn(s *Spawn) error {
	rights, err := json.Marshal(s.Rights)
	if err != nil {
		return err
	}
	_, err = j.Exec(`INSERT INTO spawns (spawn_id, launcher, node, parent_id, parent_principal, parent_session, parent_spawn, peer_id,
		name, namespace, state, rights, max_seconds, max_children, max_messages, messages, children, depth, want_result, keep_on_exit,
		created_at, started_at, ended_at, expires_at, exit_known, exit_code, result_message)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, 0, ?16, ?17, ?18, ?19, 0, 0, ?20, 0, 0, '')`,
		s.ID, s.Launcher, s.Node, s.Parent, s.ParentPrincipal, s.ParentSession, s.parentSpawn, s.Peer,
		s.Name, s.Namespace, s.State, string(rights), s.MaxSeconds, s.MaxChildren, s.MaxMessages, s.Depth, s.WantResult, s.KeepOnExit,
		s.CreatedAt, s.ExpiresAt)
	if err != nil {
		return fmt.Errorf("entering a spawn: %w", err)
	}
	return nil
}

const spawnColumns = `spawn_id, launcher, node, parent_id, parent_principal, parent_session, parent_spawn, peer_id, name, namespace, state,
	rights, max_seconds, max_children, max_messages, messages, children, depth, want_result, keep_on_exit, created_at, started_at,
	ended_at, expires_at, exit_known, exit_code, result_message`

func (s *Spawn) places() (dest []any, done func()) {
	var rights string
	var known bool
	var code int
	dest = []any{&s.ID, &s.Launcher, &s.Node, &s.Parent, &s.ParentPrincipal, &s.ParentSession, &s.parentSpawn, &s.Peer, &s.Name,
		&s.Namespace, &s.State, &rights, &s.MaxSeconds, &s.MaxChildren, &s.MaxMessages, &s.Messages, &s.Children, &s.Depth,
		&s.WantResult, &s.KeepOnExit, &s.CreatedAt, &s.StartedAt, &s.EndedAt, &s.ExpiresAt, &known, &code, &s.ResultMessage}
	return dest, func() {
		if json.Unmarshal([]byte(rights), &s.Rights) != nil {
			s.Rights = nil
		}
		if known {
			s.ExitCode = &code
		}
	}
}

// spawn reads one spawn. ErrNoRow: it does not exist.
func (j spawning) spawn(id string) (*Spawn, error) {
	s := &Spawn{}
	dest, done := s.places()
	if err := j.Row(dest, `SELECT `+spawnColumns+` FROM spawns WHERE spawn_id = ?1`, id); err != nil {
		return nil, err
	}
	done()
	return s, nil
}

// SpawnOf returns a spawn of o's peer; UnknownSpawn for any other.
func (b *Book) SpawnOf(ctx context.Context, o Owner, id string) (*Spawn, error) {
	var out *Spawn
	err := b.read(ctx, func(j *job) error {
		p, err := j.directory.me(o)
		if err != nil {
			return err
		}
		out, err = j.spawning.spawn(id)
		if errors.Is(err, store.ErrNoRow) || (err == nil && out.Parent != p.ID) {
			return refuse(UnknownSpawn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// OpenSpawns returns the spawns of this node that have not ended.
func (b *Book) OpenSpawns(ctx context.Context) ([]Spawn, error) {
	var out []Spawn
	err := b.read(ctx, func(j *job) error {
		out = nil
		return j.Each(func(scan func(...any) error) error {
			var s Spawn
			dest, done := s.places()
			if err := scan(dest...); err != nil {
				return err
			}
			done()
			out = append(out, s)
			return nil
		}, `SELECT `+spawnColumns+` FROM spawns WHERE node = ?1 AND ended_at = 0 ORDER BY spawn_id`, b.o.Node)
	})
	return out, err
}
