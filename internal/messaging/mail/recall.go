package mail

import (
	"strings"
	"sync"
)

// recalledMost bounds each of the two maps of Memory.
const recalledMost = 1024

// Memory keeps peers that Resolve has read, so that the next message between them needs
// no read. They may have changed since, also by another daemon. Send compares them with
// the database in its own transaction, so a stale one has no effect.
type Memory struct {
	mu    sync.RWMutex
	mine  map[sessionKey]Peer
	named map[addressKey]Peer
}

// sessionKey is the owner of a peer.
type sessionKey struct{ principal, session string }

// addressKey is a name in a namespace, or a peer id without one.
type addressKey struct{ namespace, address string }

// addressFrom returns the key of an address as seen from a namespace.
func addressFrom(namespace, address string) addressKey {
	if isID(address) {
		return addressKey{address: address}
	}
	if name, space, found := strings.Cut(address, "@"); found {
		return addressKey{space, name}
	}
	return addressKey{namespace, address}
}

// Recall returns what Resolve returned for the same arguments, from memory. ok is false
// if it is not known for one of them. Only agents that accept messages at once and are
// addressed by their present name or id are kept. The answer may be out of date: a caller
// passes it to Send (Draft.From, Recipient.As), and resolves again when that fails.
func (m *Memory) Recall(o Owner, addresses []string) (me Peer, found []Peer, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if me, ok = m.mine[sessionKey{o.Principal, o.Session}]; !ok {
		return me, nil, false
	}
	from := me.sender(me.kind)
	for _, a := range addresses {
		p, known := m.named[addressFrom(me.Namespace, a)]
		if !known {
			return me, nil, false
		}
		p.Lineage = lineage(p.sender(p.kind), from)
		found = append(found, p)
	}
	return me, found, true
}

// keep remembers what Resolve has read, and forgets of it what Recall must not return. A
// zero me means that the owner has no peer.
func (m *Memory) keep(o Owner, me Peer, addresses []string, found []Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	put(&m.mine, sessionKey{o.Principal, o.Session}, me, me.kind == kindAgent)
	for i, p := range found {
		key := addressFrom(me.Namespace, addresses[i])
		usual := p.kind == kindAgent && !p.Paused && (p.Inbound == InboundPolicy || p.Inbound == InboundAccept)
		put(&m.named, key, p, usual && (key.namespace == "" || key == addressKey{p.Namespace, p.Name}))
	}
}

// put sets or deletes an entry. It leaves out what neither a decision nor Send needs. A full
// map is emptied first.
func put[K comparable](m *map[K]Peer, key K, p Peer, kept bool) {
	if !kept {
		delete(*m, key)
		return
	}
	if *m == nil || len(*m) >= recalledMost {
		*m = make(map[K]Peer)
	}
	p.Display, p.Summary, p.Labels = "", "", nil
	p.Live, p.LastSeen, p.LeaseUntil, p.Pending, p.Held = false, 0, 0, 0, 0
	(*m)[key] = p
}
