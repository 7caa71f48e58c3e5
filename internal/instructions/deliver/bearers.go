package deliver

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// bearerMark is the prefix of the ids of bearer tokens, which are used in place of
// session ids. No session id has a colon.
const bearerMark = "bearer:"

// bearers holds the bearer tokens that were shown beside a connection of another kind, as
// a CI job on the Unix socket does. Each is verified at every request that shows it.
type bearers struct {
	mu sync.Mutex
	of map[string]bearing
}

type bearing struct {
	who   *principal.Principal
	until time.Time
}

// bearersKept bounds the tokens that are remembered; the one that expires first is
// dropped.
const bearersKept = 256

// bearer returns the id under which the principal of a token, which was verified just
// now, is remembered. It depends on all that is known of the token, so that two tokens of
// one name do not share their rights.
func (s *credentials) bearer(who *principal.Principal) (id string) {
	sum := sha256.Sum256([]byte(who.Identity()))
	id = bearerMark + hex.EncodeToString(sum[:8])
	s.bearers.add(id, bearing{who, s.o.Now().Add(bearerKept)})
	return id
}

func (b *bearers) add(id string, is bearing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[string]bearing)
	}
	if _, known := b.of[id]; !known && len(b.of) >= bearersKept {
		oldest := ""
		for k, v := range b.of {
			if oldest == "" || v.until.Before(b.of[oldest].until) {
				oldest = k
			}
		}
		delete(b.of, oldest)
	}
	b.of[id] = is
}

// find returns the principal of an id; nil: the id has expired or never was one.
func (b *bearers) find(id string, now time.Time) *principal.Principal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if is, ok := b.of[id]; ok && now.Before(is.until) {
		return is.who
	}
	return nil
}

func (b *bearers) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.of, func(_ string, is bearing) bool { return !now.Before(is.until) })
}
