package policy

// The cache. Invariant: a verdict is found only for a request that is equal in everything
// that the verdict depends on.

import (
	"hash/maphash"
	"sync/atomic"
)

// Bounds of the cache. A verdict with a longer key is not kept: the caller chose the
// names in the key, and must not fill memory with them.
const (
	slots       = 8192
	ways        = 4    // entries that a key may be kept in
	maxIdentity = 4096 // bytes of the caller's identity
	maxNames    = 512  // bytes of action, server and name
)

// key holds everything that a verdict depends on.
type key struct {
	who, action, server, name string
	sameProgram               bool
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

// cache is a set-associative table of fixed size without locks. Each key has a few
// places, which it shares with other keys; the first place holds the newest verdict.
type cache struct {
	seed  maphash.Seed
	table []atomic.Pointer[entry]
}

func newCache() cache {
	return cache{seed: maphash.MakeSeed(), table: make([]atomic.Pointer[entry], slots)}
}

// hash returns the hash that determines the places of k. Its seed is random, so that a
// caller cannot choose names that displace the verdicts of another caller.
func (c *cache) hash(k *key) uint64 { return maphash.Comparable(c.seed, *k) }

// places returns the places of a hash.
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

// keep puts e into the first of its places and moves the others back by one; the last is
// dropped. Of two entries that are kept concurrently one may be lost.
func (c *cache) keep(e *entry) {
	places := c.places(e.hash)
	for i := range places {
		if e = places[i].Swap(e); e == nil {
			return
		}
	}
}
