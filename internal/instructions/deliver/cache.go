package deliver

import (
	"maps"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
)

// bearerKept is how long the reader of a bearer token keeps its view while the store is
// away. Such a reader has no session whose end would limit it.
const bearerKept = 10 * time.Minute

// viewsKept bounds the views of one reader. Each program that shows the session's token
// has a view of its own.
const viewsKept = 8

// cache holds the views of readers that were given a text. While the store is
// unavailable a reader in it keeps its view until its session ends. A view is
// reused only for the set and the policy that it was made from.
type cache struct {
	mu   sync.Mutex
	held map[string]*held // by Reader.key
}

type held struct {
	until time.Time // expiry, for a bearer token; zero: it lives as long as its session
	views map[string]sight
}

// sight is a view with the set that it was made from.
type sight struct {
	*document.View
	set *document.Set
}

// has reports whether a reader was given a text.
func (c *cache) has(key string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.held[key]
	return h != nil && (h.until.IsZero() || now.Before(h.until))
}

// find returns the view that was made from set, under the key on of what it depends on.
func (c *cache) find(key, on string, set *document.Set) (sight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.held[key]; h != nil && h.views[on].set == set {
		return h.views[on], true
	}
	return sight{}, false
}

// keep stores a view that is about to be delivered. until is its expiry for a reader
// without a session; otherwise zero.
func (c *cache) keep(key, on string, v sight, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(map[string]*held)
	}
	h := c.held[key]
	if h == nil {
		h = &held{}
		c.held[key] = h
	}
	if len(h.views) >= viewsKept || h.views == nil {
		h.views = make(map[string]sight, 1)
	}
	h.until, h.views[on] = until, v
}

// renew removes the views of every other set, so that no withdrawn document stays in
// memory.
func (c *cache) renew(set *document.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		maps.DeleteFunc(h.views, func(_ string, v sight) bool { return v.set != set })
	}
}

// drop removes a reader.
func (c *cache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, key)
}

// sweep removes the readers whose session has ended or whose time is over.
func (c *cache) sweep(now time.Time, lives func(session string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.held, func(key string, h *held) bool {
		return h.until.IsZero() && !lives(key) || !h.until.IsZero() && !now.Before(h.until)
	})
}
