package relay

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
)

// A connection keeps the lists that it has answered, in the aggregate's names and before
// policy has removed anything. The next merged list of the same caller with the same params
// is made from them, as long as the server is known to answer the same: it reports changes
// and has reported none, or it said for how long its answer holds. After the connection has
// ended, or the configuration or the approved definitions have changed, the server is asked
// again. Lists in pages are not kept.

// shelving collects a listing.Known while a server is asked. nil: the answer is not kept.
type shelving struct {
	conn           *liveConn
	key            string
	changes, epoch uint64
	asked          time.Time
	result         []byte // the server's, without what is withheld
	mirrors        bool
}

// begin notes what must be unchanged when the list is used again.
func (s *shelving) begin(x *front.Exchange, b *backend, c *liveConn, mirrors bool, method string, params []byte) {
	if s == nil {
		return
	}
	*s = shelving{conn: c, key: listing.ShelfKey(x, method, params), changes: c.offers.Changes(method), epoch: b.epoch(), asked: time.Now(), mirrors: mirrors}
}

// take keeps the server's answer.
func (s *shelving) take(result []byte) {
	if s != nil {
		s.result = bytes.Clone(result)
	}
}

// done keeps the list on the connection if it may be used again.
func (s *shelving) done(x *front.Exchange, b *backend, kind listing.Kind, method string) {
	if s.conn == nil || len(s.result) == 0 || len(s.result) > listing.ShelfBytes || listing.Next(s.result) != nil {
		return
	}
	until, ok := s.conn.holds(b, method, s.result, s.asked)
	if !ok {
		return
	}
	made := listing.Shelve(b.Name, kind, s.result, x.Era == front.Legacy, s.mirrors)
	made.Changes, made.Epoch, made.Until = s.changes, s.epoch, until
	if s.conn.current(made, b, method) {
		s.conn.shelve(s.key, made)
	}
}

// holds returns until when an answer may be used again, zero: until a change is reported. ok
// is false if it may not: only a program on a pipe is sure to be heard when it reports a
// change, and from others a report may be lost.
func (c *liveConn) holds(b *backend, method string, result []byte, asked time.Time) (until time.Time, ok bool) {
	if c.era == front.Modern {
		ttl, err := strconv.ParseInt(string(rawjson.Get(result, "ttlMs")), 10, 64)
		return asked.Add(time.Duration(min(ttl, math.MaxInt32)) * time.Millisecond), err == nil && ttl > 0
	}
	member, known := listing.Reported[method]
	return time.Time{}, known && b.Kind == "stdio" && b.Builtin == nil && rawjson.IsTrue(rawjson.GetPath(c.hello, "capabilities", member, "listChanged"))
}

// current reports whether the server is known to answer the same as a kept list.
func (c *liveConn) current(s *listing.Known, b *backend, method string) bool {
	return c.alive() && s.Changes == c.offers.Changes(method) && s.Epoch == b.epoch() && (s.Until.IsZero() || time.Now().Before(s.Until))
}

// epoch changes when the approved definitions of the server change.
func (b *backend) epoch() uint64 {
	if b.Pin == nil {
		return 0
	}
	return b.Pin.Epoch()
}

// shelve keeps a list. If there is no room, it drops any other list of the connection.
func (c *liveConn) shelve(key string, s *listing.Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shelves == nil {
		c.shelves = make(map[string]*listing.Known)
	}
	for other := range c.shelves {
		if len(c.shelves) < listing.ShelvesOfConn {
			break
		}
		delete(c.shelves, other)
	}
	c.shelves[key] = s
}

// shelfOf returns the kept list for a request; nil: none that is current.
func (c *liveConn) shelfOf(b *backend, key, method string) *listing.Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[key]
	if s != nil && !c.current(s, b, method) {
		delete(c.shelves, key)
		return nil
	}
	return s
}

func (c *liveConn) keeps() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.shelves) > 0
}
