package authn

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Bounds of the cache of verified tokens.
const (
	generation = 4096    // tokens in each of two generations
	maxLive    = 1 << 16 // principals, local and not
)

// accessToken is a verified token. The principals are made once, so that a request
// makes none.
type accessToken struct {
	expires       int64 // Unix nanoseconds
	key           string
	remote, local *principal.Principal
}

func newAccessToken(who *principal.Principal, expires time.Time, key string) *accessToken {
	return &accessToken{expires: expires.UnixNano(), key: key, remote: who, local: who.WithLocal()}
}

func (t *accessToken) holds(now time.Time) bool { return now.UnixNano() < t.expires }

func (t *accessToken) principal(local bool) *principal.Principal {
	if local {
		return t.local
	}
	return t.remote
}

// verified caches verified tokens by digest, and the principals that they prove. It is
// bounded: a token that was dropped is verified again, and a principal without an entry
// loses its streams.
type verified struct {
	mu         sync.RWMutex
	young, old map[[sha256.Size]byte]*accessToken
	proved     map[string]*accessToken // by Identity: the token that expires last
	sweepAt    int                     // size of proved at which expired entries are dropped
}

// get finds a token in either generation and moves it to the young one.
func (v *verified) get(digest [sha256.Size]byte) *accessToken {
	v.mu.RLock()
	t, fresh := v.young[digest]
	if !fresh {
		t = v.old[digest]
	}
	v.mu.RUnlock()
	if t != nil && !fresh {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.old[digest] == t { // else it was withdrawn meanwhile
			v.add(digest, t)
		}
	}
	return t
}

// add puts a token into the young generation. The caller holds mu.
func (v *verified) add(digest [sha256.Size]byte, t *accessToken) {
	if len(v.young) >= generation {
		v.old, v.young = v.young, nil
	}
	if v.young == nil {
		v.young = make(map[[sha256.Size]byte]*accessToken)
	}
	v.young[digest] = t
}

func (v *verified) put(digest [sha256.Size]byte, t *accessToken, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.add(digest, t)
	if v.proved == nil {
		v.proved, v.sweepAt = make(map[string]*accessToken), 1024
	}
	if len(v.proved) >= v.sweepAt {
		v.sweep(now)
	}
	for _, id := range []string{t.remote.Identity(), t.local.Identity()} {
		if before := v.proved[id]; (before != nil || len(v.proved) < maxLive) && (before == nil || before.expires < t.expires) {
			v.proved[id] = t
		}
	}
}

// sweep drops expired entries of proved. The caller holds mu.
func (v *verified) sweep(now time.Time) {
	maps.DeleteFunc(v.proved, func(_ string, t *accessToken) bool { return !t.holds(now) })
	v.sweepAt = max(1024, 2*len(v.proved))
}

func (v *verified) live(identity string, now time.Time) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	t := v.proved[identity]
	return t != nil && t.holds(now)
}

// withdraw drops the tokens that were signed by a key that the issuer no longer has.
func (v *verified) withdraw(r *keyring) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, generation := range []map[[sha256.Size]byte]*accessToken{v.young, v.old} {
		maps.DeleteFunc(generation, func(_ [32]byte, t *accessToken) bool { return !r.prints[t.key] })
	}
	maps.DeleteFunc(v.proved, func(_ string, t *accessToken) bool { return !r.prints[t.key] })
}
