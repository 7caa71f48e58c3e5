package mail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
)

// DefaultNamespace is the namespace of a peer that names none.
const DefaultNamespace = "default"

// aliasesMax is how many unexpired aliases a peer may have.
const aliasesMax = 16

// Register binds a name to o. dead holds the sessions, by digest, that are known on this
// node to have ended; their leases are ended first. Errors: NameOwned, NameInUse,
// NameInvalid, NameReserved, PeerLimit.
func (b *Book) Register(ctx context.Context, o Owner, r Registration, dead []string, note Note[Registered]) (*Registered, error) {
	if err := r.check(o); err != nil {
		return nil, err
	}
	return perform(ctx, b, note, func(j *job) (*Registered, error) {
		out := &Registered{}
		if _, err := j.directory.endSessions(dead); err != nil {
			return nil, err
		}
		if err := j.registering.register(o, r, out); err != nil {
			return nil, err
		}
		if err := j.flush(); err != nil {
			return nil, err
		}
		p, g, err := j.directory.look(`peers.peer_id = ?1`, out.Peer.ID)
		if err != nil {
			return nil, err
		}
		if out.Counts, err = j.mailboxes.counts(p, g, Receipt{}); err != nil {
			return nil, err
		}
		out.Counts.Receipt.Notice = g.covered // the answer shows no notices
		p.Lineage, p.Pending, p.Held = LineageSelf, 0, 0
		out.Peer = p
		return out, nil
	})
}

func (r Registration) check(o Owner) error {
	if o.Session == "" || o.Principal == "" {
		return refuse(NotRegistered)
	}
	if r.Name != "" {
		if err := checkName(r.Name); err != nil {
			return err
		}
	}
	if r.Namespace != "" && !ValidName(r.Namespace) {
		return refuse(NameInvalid)
	}
	switch r.Inbound {
	case "", InboundPolicy, InboundAccept, InboundHold, InboundRefuse:
		return nil
	}
	return refuse(InvalidArgument)
}

// register refreshes the peer of a registered session, or binds a name to another one.
// The session's own row is locked first, so that one session never binds two names at
// once.
func (j registering) register(o Owner, r Registration, out *Registered) error {
	if err := j.session(o); err != nil {
		return fmt.Errorf("locking the session: %w", err)
	}
	p, err := j.directory.fence(o)
	var e *Error
	switch {
	case errors.As(err, &e) && r.Former != "":
		p, err = j.resume(o, r.Former, out)
	case errors.As(err, &e):
		p, err = j.bind(o, r, out)
	case err == nil:
		p, err = j.refresh(o, p, r, out)
	}
	if err != nil {
		return err
	}
	out.Peer = p
	if _, err := j.Exec(`UPDATE peer_sessions SET peer_id = ?3, superseded = 0 WHERE principal = ?1 AND session = ?2`,
		o.Principal, o.Session, p.ID); err != nil {
		return err
	}
	j.signal(TopicPeers)
	return j.describe(p, r)
}

// processesMax bounds the process instances that are kept of a session.
const processesMax = 16

// session locks the row of o's session, and adds o's processes to it: two shims can
// belong to one session.
func (j registering) session(o Owner) error {
	var known string
	err := j.Row([]any{&known}, `INSERT INTO peer_sessions (principal, session, node, peer_id, superseded, processes, changed_at)
		VALUES (?1, ?2, ?3, '', 0, '', ?4)
		ON CONFLICT (principal, session) DO UPDATE SET node = excluded.node, changed_at = excluded.changed_at RETURNING processes`,
		o.Principal, o.Session, o.Node, j.now)
	if err != nil {
		return err
	}
	all := strings.Fields(known)
	for _, p := range o.Processes {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	all = all[max(0, len(all)-processesMax):]
	if text := strings.Join(all, "\n"); text != known {
		_, err = j.Exec(`UPDATE peer_sessions SET processes = ?3 WHERE principal = ?1 AND session = ?2`, o.Principal, o.Session, text)
	}
	return err
}

// refresh registers a session that already has a peer.
func (j registering) refresh(o Owner, p Peer, r Registration, out *Registered) (Peer, error) {
	name, space := r.Name, cmp.Or(r.Namespace, p.Namespace)
	switch {
	case r.Former != "": // it has what it wants to take over, or something else
		name, space = p.Name, p.Namespace
	case p.Spawn != "": // its name stays below its parent's name
		space = p.Namespace
		if name != "" {
			name = p.Name[:strings.LastIndexByte(p.Name, '/')+1] + name
		}
	}
	if name = cmp.Or(name, p.Name); name != p.Name || space != p.Namespace {
		if err := j.rename(p, space, name); err != nil {
			return p, err
		}
		out.Renamed = p.Name
	}
	_, err := j.Exec(`UPDATE peers SET lease_until = ?2, node = ?3 WHERE peer_id = ?1`, p.ID, j.lease(), o.Node)
	return p, err
}

// rename takes a free name for p, whose row is locked, and turns the old name into an
// alias.
func (j registering) rename(p Peer, space, name string) error {
	var aliases int
	if err := j.Row([]any{&aliases}, `SELECT count(*) FROM peer_names WHERE peer_id = ?1 AND kind = 'alias' AND expires_at > ?2`, p.ID, j.now); err != nil {
		return err
	}
	if aliases >= aliasesMax {
		return &Error{Code: PeerLimit, Retry: j.b.o.Limits.Alias}
	}
	var taken string
	err := j.Row([]any{&taken}, `INSERT INTO peer_names (namespace, name, kind, peer_id, principal, parent, expires_at)
		VALUES (?1, ?2, 'peer', ?3, ?4, ?5, 0)
		ON CONFLICT (namespace, name) DO UPDATE SET kind = 'peer', peer_id = excluded.peer_id, principal = excluded.principal,
			parent = excluded.parent, expires_at = 0
		WHERE peer_names.kind <> 'peer' AND (peer_names.expires_at <= ?6
			OR (peer_names.kind = 'alias' AND peer_names.peer_id = excluded.peer_id)
			OR (peer_names.kind = 'tombstone' AND peer_names.principal = excluded.principal))
		RETURNING peer_id`, space, name, p.ID, p.Principal, p.parent(), j.now)
	if errors.Is(err, store.ErrNoRow) {
		return j.taken(p.Principal, space, name)
	}
	if err != nil {
		return fmt.Errorf("taking a name: %w", err)
	}
	_, err = j.Exec(`UPDATE peer_names SET kind = 'alias', expires_at = ?4 WHERE namespace = ?1 AND name = ?2 AND peer_id = ?3`,
		p.Namespace, p.Name, p.ID, j.now+j.b.o.Limits.Alias.Milliseconds())
	if err == nil {
		_, err = j.Exec(`UPDATE peers SET namespace = ?2, name = ?3 WHERE peer_id = ?1`, p.ID, space, name)
	}
	if err == nil && space != p.Namespace {
		if err = j.leaveSpace(p.Namespace); err == nil {
			err = j.enterSpace(space)
		}
	}
	return err
}

func (p Peer) parent() string {
	if len(p.Ancestors) == 0 {
		return ""
	}
	return p.Ancestors[0]
}

// bind gives a name to a session that has no peer: a free one, or one that its principal
// owns.
func (j registering) bind(o Owner, r Registration, out *Registered) (Peer, error) {
	space := cmp.Or(r.Namespace, DefaultNamespace)
	switch {
	case o.Spawn != "":
		return j.bindSpawned(o, out)
	case r.Name != "":
		return j.claim(o, space, r.Name, r, out)
	}
	for range 5 {
		p, err := j.claim(o, space, madeName("agent"), r, out)
		var e *Error
		if !errors.As(err, &e) || e.Code == PeerLimit {
			return p, err
		}
	}
	return Peer{}, refuse(NameInUse)
}

// claim takes over the peer of a name that belongs to o's principal, or creates a peer
// with the name. One statement decides in each case, so that no two sessions get the
// name. The read before it selects the case, so that the rows of peers are locked before
// those of names, as everywhere.
func (j registering) claim(o Owner, space, name string, r Registration, out *Registered) (Peer, error) {
	was := seen{namespace: space, name: name}
	err := j.Row([]any{&was.id, &was.session}, `SELECT p.peer_id, p.session FROM peer_names n JOIN peers p ON p.peer_id = n.peer_id
		WHERE n.namespace = ?1 AND n.name = ?2 AND n.kind = 'peer' AND n.principal = ?3`, space, name, o.Principal)
	if err == nil {
		return j.takeOver(o, was, out)
	}
	if !errors.Is(err, store.ErrNoRow) {
		return Peer{}, fmt.Errorf("looking for a name: %w", err)
	}
	var id string
	err = j.Row([]any{&id}, `INSERT INTO peer_names (namespace, name, kind, peer_id, principal, parent, expires_at)
		VALUES (?1, ?2, 'peer', ?3, ?4, '', 0)
		ON CONFLICT (namespace, name) DO UPDATE SET kind = 'peer', peer_id = excluded.peer_id, principal = excluded.principal,
			parent = '', expires_at = 0
		WHERE peer_names.kind <> 'peer' AND (peer_names.expires_at <= ?5
			OR (peer_names.kind = 'tombstone' AND peer_names.principal = excluded.principal AND peer_names.parent = ''))
		RETURNING peer_id`, space, name, j.b.ids.next(j.now), o.Principal, j.now)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return Peer{}, j.taken(o.Principal, space, name)
	case err != nil:
		return Peer{}, fmt.Errorf("claiming a name: %w", err)
	}
	if err := j.enterSpace(space); err != nil {
		return Peer{}, err
	}
	out.Created = true
	p := Peer{ID: id, Name: name, Namespace: space, Principal: o.Principal, Session: o.Session, Node: o.Node, Grade: o.Grade,
		Epoch: 1, LeaseUntil: j.lease(), Inbound: cmp.Or(r.Inbound, InboundPolicy)}
	return p, j.insertPeer(p, kindAgent)
}

// enterSpace counts a peer into a namespace; PeerLimit: the namespace is full.
func (j registering) enterSpace(space string) error {
	var n int64
	err := j.Row([]any{&n}, `INSERT INTO peer_spaces (namespace, peers) VALUES (?1, 1)
		ON CONFLICT (namespace) DO UPDATE SET peers = peer_spaces.peers + 1 WHERE peer_spaces.peers < ?2 RETURNING peers`,
		space, j.b.o.Limits.Namespace)
	if errors.Is(err, store.ErrNoRow) {
		return refuse(PeerLimit)
	}
	return err
}

func (j registering) leaveSpace(space string) error {
	_, err := j.Exec(`UPDATE peer_spaces SET peers = peers - 1 WHERE namespace = ?1 AND peers > 0`, space)
	return err
}

// bindSpawned binds the agent of a spawn to the peer that was entered for it.
func (j registering) bindSpawned(o Owner, out *Registered) (Peer, error) {
	var was seen
	err := j.Row([]any{&was.id, &was.session, &was.namespace, &was.name}, `SELECT p.peer_id, p.session, p.namespace, p.name FROM spawns s JOIN peers p ON p.peer_id = s.peer_id
		WHERE s.spawn_id = ?1 AND p.principal = ?2 AND p.kind = 'agent'`, o.Spawn, o.Principal)
	if errors.Is(err, store.ErrNoRow) {
		return Peer{}, refuse(NameOwned)
	}
	if err != nil {
		return Peer{}, err
	}
	return j.takeOver(o, was, out)
}

// describe stores the fields of the registration that describe the peer.
func (j registering) describe(p Peer, r Registration) error {
	if r.SetInbound {
		if _, err := j.Exec(`UPDATE mailboxes SET inbound = ?2 WHERE peer_id = ?1`, p.ID, cmp.Or(r.Inbound, InboundPolicy)); err != nil {
			return err
		}
	}
	if !r.SetDisplay && !r.SetSummary && !r.SetLabels {
		return nil
	}
	_, err := j.Exec(`UPDATE peers SET display = CASE WHEN ?2 = 1 THEN ?3 ELSE display END,
		summary = CASE WHEN ?4 = 1 THEN ?5 ELSE summary END, labels = CASE WHEN ?6 = 1 THEN ?7 ELSE labels END WHERE peer_id = ?1`,
		p.ID, r.SetDisplay, r.Display, r.SetSummary, r.Summary, r.SetLabels, labelText(r.Labels))
	return err
}
