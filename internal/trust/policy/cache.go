package policy

// The cache. Invariant: a verdict is found only under a key that is equal in all that
// the verdict depends on.

import (
	"hash/maphash"
	"sync/atomic"
)

// Bounds of the cache. A question with a longer key is answered afresh each
// time: the caller chose the names in it, and must not fill memory with them.
const (
	slots       = 8192
	ways        = 4    // places that a key has
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
	hash    uint64 // of the key
	key     key
	verdict verdict
}

// cache is a table in which each key has a few places, shared with other keys; the
// first one holds the last decision. It has no locks to wait for and a fixed size.
type cache struct {
	seed  maphash.Seed
	table []atomic.Pointer[entry]
}

func newCache() cache {
	return cache{seed: maphash.MakeSeed(), table: make([]atomic.Pointer[entry], slots)}
}

// hash says where the places of k are. The seed is random, so that a caller cannot choose
// names that share them with another caller's.
func (c *cache) hash(k *key) uint64 { return maphash.Comparable(c.seed, *k) }

// places are those of a hash.
func (c *cache) places(hash uint64) []atomic.Pointer[entry] {
	at := hash % (slots / ways) * ways
	return c.table[at : at+ways]
}

// find returns the verdict of k; nil: none is kept.
func (c *cache) find(k *key, hash uint64) *verdict {
	places := c.places(hash)
	for i := range places {
		if e := places[i].Load(); e != nil && e.hash == hash && e.key == *k {
			return &e.verdict
		}
	}
	return nil
}

// keep puts e in front of those that it shares its places with; the last one goes. Of two
// that are kept at once one may be lost.
func (c *cache) keep(e *entry) {
	places := c.places(e.hash)
	for i := range places {
		if e = places[i].Swap(e); e == nil {
			return
		}
	}
}
