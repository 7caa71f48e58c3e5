package mail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
)

// Resolve reads o's own peer, as Me does, and on the same view the peers that
// addresses name as seen from it: a name in its namespace, an alias,
// name@namespace, parent/child, operator, or a peer id. Peer.Name is empty in the
// place of an address without a peer. The caller decides whether o may know of them.
func (b *Book) Resolve(ctx context.Context, o Owner, addresses []string) (me Peer, found []Peer, err error) {
	err = b.read(ctx, func(j *job) (err error) {
		if me, err = j.directory.me(o); err == nil {
			found, err = j.directory.resolveAll(me, addresses)
		}
		return err
	})
	b.Known.keep(o, me, addresses, found) // after an error found is nil
	return me, found, err
}

func (j directory) resolveAll(me Peer, addresses []string) ([]Peer, error) {
	out := make([]Peer, len(addresses))
	for i, a := range addresses {
		p, err := j.resolve(me, a)
		if err != nil && !errors.Is(err, store.ErrNoRow) {
			return nil, fmt.Errorf("resolving an address: %w", err)
		}
		if err == nil {
			p.Lineage = lineage(p.sender(p.kind), me.sender(me.kind))
			p.Pending, p.Held = 0, 0
			out[i] = p
		}
	}
	return out, nil
}

func (j directory) resolve(me Peer, address string) (p Peer, err error) {
	if address == Operator {
		node := me.Node
		if node == "" {
			node = j.b.o.Node
		}
		p, _, err = j.look(`peers.kind = 'operator' AND peers.peer_id = (SELECT operator_id FROM mail_nodes WHERE node = ?1)`, node)
		return p, err
	}
	if isID(address) {
		p, _, err = j.look(`peers.peer_id = ?1 AND peers.kind IN ('agent', 'operator')`, address)
		return p, err
	}
	name, space, found := strings.Cut(address, "@")
	if !found {
		space = me.Namespace
	}
	p, _, err = j.look(`peers.kind = 'agent' AND peers.peer_id = (SELECT n.peer_id FROM peer_names n
		WHERE n.namespace = ?1 AND n.name = ?2 AND (n.kind = 'peer' OR (n.kind = 'alias' AND n.expires_at > ?3)))`, space, name, j.now)
	return p, err
}

// Peers lists the peers of a namespace (empty: all) in the order of their ids, after the
// id after, with their lineage to me. A zero me stands for the operator: only it gets the
// peers of the nodes' operators and the counts.
func (b *Book) Peers(ctx context.Context, me Peer, namespace, after string, limit int) ([]Peer, error) {
	var out []Peer
	err := b.read(ctx, func(j *job) (err error) {
		out, err = j.directory.list(me, namespace, after, limit)
		return err
	})
	return out, err
}

func (j directory) list(me Peer, namespace, after string, limit int) ([]Peer, error) {
	where, args := `(peers.kind = 'agent' OR (peers.kind = 'operator' AND ?3 = 1))`, []any{after, limit, me.ID == ""}
	if namespace != "" {
		where, args = where+` AND peers.namespace = ?4`, append(args, namespace)
	}
	var out []Peer
	err := j.Each(func(scan func(...any) error) error {
		var p Peer
		dest, done := p.places(j.now)
		var queued, leased, held int
		if err := scan(append(dest, &p.Inbound, &p.Paused, &queued, &leased, &held)...); err != nil {
			return err
		}
		done()
		p.Lineage = lineage(p.sender(p.kind), me.sender(me.kind))
		if me.ID == "" {
			p.Lineage, p.Pending, p.Held = "", queued+leased, held
		}
		out = append(out, p)
		return nil
	}, `SELECT `+peerColumns+`, m.inbound, m.paused, m.queued, m.leased, m.held FROM peers JOIN mailboxes m ON m.peer_id = peers.peer_id
		WHERE peers.peer_id > ?1 AND `+where+` ORDER BY peers.peer_id LIMIT ?2`, args...)
	return out, err
}

// Touch extends the leases of sessions of this node that showed a sign of life. An ended
// session stays ended.
func (b *Book) Touch(ctx context.Context, sessions []string) error {
	if len(sessions) == 0 {
		return nil
	}
	return b.mark(ctx, func(j *job) error {
		for _, s := range slices.Sorted(slices.Values(sessions)) {
			_, err := j.Exec(`UPDATE peers SET last_seen = ?3, lease_until = CASE WHEN lease_until > ?4 THEN lease_until ELSE ?4 END
				WHERE session = ?1 AND node = ?2 AND kind = 'agent' AND session <> '' AND lease_until > 0`,
				s, j.b.o.Node, j.now, j.registering.lease())
			if err != nil {
				return fmt.Errorf("extending a lease: %w", err)
			}
		}
		return nil
	})
}

// End ends the leases of sessions at once and for good: an act of theirs that is still
// under way does not renew them.
func (b *Book) End(ctx context.Context, sessions []string) error {
	if len(sessions) == 0 {
		return nil
	}
	return b.write(ctx, func(j *job) error {
		ended, err := j.directory.endSessions(sessions)
		switch {
		case err != nil:
			return err
		case len(ended) == 0:
			return errNothing
		}
		return noted(j, b.o.Upkeep, &Upkeep{What: UpkeepEnded, Ended: ended})
	})
}

// endSessions ends the leases of sessions of this node, and returns the sessions that had
// one.
func (j directory) endSessions(sessions []string) (ended []string, err error) {
	for _, s := range slices.Sorted(slices.Values(sessions)) {
		n, err := j.Exec(`UPDATE peers SET lease_until = 0 WHERE session = ?1 AND node = ?2 AND kind = 'agent' AND session <> '' AND lease_until > 0`,
			s, j.b.o.Node)
		if err != nil {
			return nil, fmt.Errorf("ending a lease: %w", err)
		}
		if n > 0 {
			ended = append(ended, s)
		}
	}
	return ended, nil
}

// Agents returns the process instances of this node's registered agents, live or not, for
// the rule that an agent's shell is not the operator's. Agents that released their name
// or were superseded are included until their rows are deleted: otherwise an agent could
// release its name and pass for the operator.
func (b *Book) Agents(ctx context.Context) ([]string, error) {
	var out []string
	err := b.read(ctx, func(j *job) error {
		out = nil
		return j.Each(func(scan func(...any) error) error {
			var processes string
			err := scan(&processes)
			out = append(out, strings.Fields(processes)...)
			return err
		}, `SELECT processes FROM peer_sessions WHERE node = ?1 AND processes <> ''`, b.o.Node)
	})
	return out, err
}
