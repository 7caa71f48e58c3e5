package policy

import (
	"hash/maphash"
	"sync/atomic"
)

// Bounds of the cache. A question with a longer key is answered afresh each
// time: the caller chose the names in it, and must not fill memory with them.
const (
	slots       = 4096
	maxIdentity = 4096 // bytes of who asks
	maxNames    = 512  // bytes of what is asked
)

// key is everything that a verdict depends on.
type key struct {
	who, action, server, name string
	confirmed                 bool
}

func keyOf(q Request) key {
	return key{q.Who.Identity(), q.Action, q.Server, q.Name, q.Confirmed}
}

func (k *key) fits() bool {
	return len(k.who) <= maxIdentity && len(k.action)+len(k.server)+len(k.name) <= maxNames
}

// entry is one kept verdict; it never changes.
type entry struct {
	key     key
	verdict verdict
}

// cache is a table in which each key has one place, shared with other keys; the
// place holds the last decision. It has no locks to wait for and a fixed size.
type cache struct {
	seed  maphash.Seed
	table []atomic.Pointer[entry]
}

func newCache() cache {
	return cache{seed: maphash.MakeSeed(), table: make([]atomic.Pointer[entry], slots)}
}

// slot returns the place of k. The seed is random, so that a caller cannot choose
// names that share a place with another caller's.
func (c *cache) slot(k *key) *atomic.Pointer[entry] {
	h := maphash.String(c.seed, k.who)
	h = h*31 + maphash.String(c.seed, k.action)
	h = h*31 + maphash.String(c.seed, k.server)
	h = h*31 + maphash.String(c.seed, k.name)
	if k.confirmed {
		h++
	}
	return &c.table[(h^h>>32)%slots]
}
