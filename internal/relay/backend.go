package relay

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// poolIdle is how long a pooled connection outlives its last use.
const poolIdle = 10 * time.Minute

// replaced is added to the count of connections of a server whose settings have changed. It is
// more than the connections that end, so that no approval for the one is valid for the other.
const replaced = 1 << 32

// backend is one server with its open connections.
type backend struct {
	Server
	traffic traffic
	known   atomic.Uint32 // eras that are known to fail, as bits of eraBit
	spoken  atomic.Uint32 // eras that have worked
	params  paramheader.Table
	parking parking
	asking  askers
	tasks   taskOwners
	unasked content.Tally
	// greeted is the connection opened last, maybe to an earlier server of this name; it shows
	// what the server declares.
	greeted atomic.Pointer[liveConn]
	owed    listing.Owed
	trouble atomic.Pointer[trouble]
	// fallen counts the connections that ended by themselves or by the operator. The next
	// connection is then to another process.
	fallen atomic.Uint64

	mu     sync.Mutex
	pool   map[string]*link
	closed bool
	conns  map[*liveConn]struct{} // open ones, and dead ones not yet noticed
	starts int                    // connections being opened
	turn   chan struct{}          // held by the first start of a program
}

func newBackend(s Server) *backend {
	b := &backend{Server: s, pool: make(map[string]*link), turn: make(chan struct{}, 1)}
	if s.Upstream != nil {
		b.tasks.at = upstream.Address(s.Upstream)
	}
	return b
}

// reserve counts a connection that is about to be opened against the cap on instances. Dead
// connections are noticed here, so that none needs a goroutine that waits for its end.
func (b *backend) reserve() (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune()
	switch {
	case b.Refused != "":
		return nil, failure.ErrRefusedServer
	case b.closed:
		return nil, failure.ErrGone
	}
	if b.Kind == "stdio" && b.MaxInstances > 0 && len(b.conns)+b.starts >= b.MaxInstances {
		return nil, failure.ErrInstances
	}
	b.starts++
	return func() {
		b.mu.Lock()
		b.starts--
		b.mu.Unlock()
	}, nil
}

// greeting returns a copy of a server's greeting that keeps no buffer of a connection. The
// connections of a server share it as long as it stays the same.
func (b *backend) greeting(hello []byte) []byte {
	if last := b.greeted.Load(); last != nil && bytes.Equal(last.hello, hello) {
		return last.hello
	}
	return bytes.Clone(hello)
}

// startable returns the error for a program that may not be started; nil: it may.
func (b *backend) startable() error {
	if b.Pin == nil {
		return nil
	}
	return b.Pin.Start()
}

// coldTime is how long a start of a program waits for another first start of it.
const coldTime = 3 * time.Minute

// alone waits while another process of a program that has never worked yet is being started:
// it may be installing itself, and two installations at once could break each other. The
// caller calls done after the start.
func (b *backend) alone(ctx context.Context) (done func()) {
	if b.Kind != upstream.KindStdio || b.spoken.Load() != 0 {
		return func() {}
	}
	select {
	case b.turn <- struct{}{}:
		return func() { <-b.turn }
	case <-time.After(coldTime):
	case <-ctx.Done():
	}
	return func() {}
}

// keep adds an open connection to conns; false: the server was taken out of the configuration
// while the connection opened.
func (b *backend) keep(c *liveConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.conns == nil {
		b.conns = make(map[*liveConn]struct{})
	}
	b.conns[c] = struct{}{}
	if b.Kind == upstream.KindHTTP { // waiting for the end of another takes a goroutine: prune finds it
		upstream.After(c.conn, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			forgetDead(b, c)
		})
	}
	return true
}

// prune drops the dead connections. The caller holds mu.
func (b *backend) prune() {
	for c := range b.conns {
		forgetDead(b, c)
	}
}

// forgetDead drops a connection if it is dead. The caller holds mu.
func forgetDead(b *backend, c *liveConn) {
	if _, open := b.conns[c]; !open || c.alive() {
		return
	}
	delete(b.conns, c)
	if !c.rested.Load() {
		b.fallen.Add(1)
	}
}

func (b *backend) instances() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune()
	return len(b.conns)
}

// restart ends the open connections, and returns their number.
func (b *backend) restart() int {
	b.mu.Lock()
	b.prune()
	open := slices.Collect(maps.Keys(b.conns))
	b.mu.Unlock()
	for _, c := range open {
		c.conn.Close()
	}
	return len(open)
}

// eras lists the eras to try for a client of the given one: the client's own first, without
// those that this server is known not to speak.
func (b *backend) eras(client front.Era) []front.Era {
	switch b.Protocol {
	case "legacy":
		return []front.Era{front.Legacy}
	case "modern":
		return []front.Era{front.Modern}
	}
	if b.Kind == "sse" {
		return []front.Era{front.Legacy}
	}
	if b.Builtin != nil {
		return []front.Era{client}
	}
	other := front.Legacy
	if client == front.Legacy {
		other = front.Modern
	}
	var out []front.Era
	for _, e := range []front.Era{client, other} {
		if b.known.Load()&eraBit(e) == 0 {
			out = append(out, e)
		}
	}
	if len(out) == 0 { // every era failed once: try them again
		b.known.Store(0)
		return []front.Era{client, other}
	}
	return out
}

func eraBit(e front.Era) uint32 { return 1 << uint(e) }

// lacks notes that the server does not speak an era. A restart of the daemon or a change of
// the definition makes a new backend and thereby resets the note.
func (b *backend) lacks(e front.Era) { b.known.Or(eraBit(e)) }

// have returns the pooled link of a key and marks it as used; nil: there is none yet.
func (b *backend) have(key string) *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.pool[key]
	if l != nil {
		l.used.Store(time.Now().UnixNano())
	}
	return l
}

// full reports whether the pool has so many connections that a clientInfo opens no further
// one. The bound is needed because clients choose their clientInfo.
func (b *backend) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pool) >= maxPooled
}

func (b *backend) poolKey(who *principal.Principal, client front.Era) string {
	era := string('0' + rune(client))
	switch {
	case b.Instances == "shared":
		return era
	case b.Builtin != nil: // it tells the processes of one user apart
		return era + who.Key()
	}
	return era + who.Name()
}

// openFor returns an open connection of a principal; nil: there is none.
func (b *backend) openFor(who *principal.Principal, client front.Era) *liveConn {
	key := b.poolKey(who, client)
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, l := range b.pool {
		if c := l.live.Load(); (k == key || strings.HasPrefix(k, key+"\x00")) && c != nil && c.alive() {
			return c
		}
	}
	return nil
}

// adopt makes a connection the one of all clients of its principal when its server is modern:
// there each request declares its client's capabilities.
func (b *backend) adopt(l *link) {
	if l.says.empty() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	plain := b.poolKey(l.who, l.client)
	if b.pool[plain] == nil && b.pool[l.key] == l {
		delete(b.pool, l.key)
		b.pool[plain] = l
	}
}

// sweep closes pooled connections that were not used after before.
func (b *backend) sweep(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune()
	b.unasked.Flush(time.Now().Add(-content.SumTime))
	for key, l := range b.pool {
		if l.used.Load() < before.UnixNano() && !l.busy() {
			delete(b.pool, key)
			go l.close()
		}
	}
}

func (b *backend) close() {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Values(b.pool))
	conns := slices.Collect(maps.Keys(b.conns))
	b.mu.Unlock()
	b.unasked.Flush(time.Now())
	for _, l := range all {
		l.close()
	}
	for _, c := range conns { // those that sessions hold
		c.conn.Close()
	}
}

// over reports that a server was taken out of the configuration.
func over(b *backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// limited bounds a context by the server's limit for a call, if it has one.
func (b *backend) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.Timeout)
}

// trouble describes the failed attempts to connect to a server since it was last connected.
type trouble struct {
	count int
	last  time.Time
	why   string
}

func (t *trouble) String() string {
	return fmt.Sprintf("%s (%dx, last %s)", t.why, t.count, t.last.Local().Format("15:04"))
}

// starting reports that a connection is being opened.
func (b *backend) starting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.starts > 0
}

// table holds the servers of one configuration generation.
type table struct {
	byName map[string]*backend
	sorted []*backend
	// removed has what the servers declared that reloads have taken away, the last one last: a
	// server that comes back is announced to the sessions that it had declared changes to.
	removed []removed
}

// removed is what a server declared that is configured no longer.
type removed struct {
	server string
	said   *liveConn // its era and its hello alone
}

// removedMost is how many removed servers a table has.
const removedMost = 256

// said returns what a server declared last, also one that was removed; nil: nothing.
func (t *table) said(server string) *liveConn {
	if b := t.byName[server]; b != nil {
		return b.greeted.Load()
	}
	if i := slices.IndexFunc(t.removed, func(r removed) bool { return r.server == server }); i >= 0 {
		return t.removed[i].said
	}
	return nil
}

// succeed makes t, which has its servers, the successor of a table. Nothing else of a server that
// was replaced or removed is kept.
func (t *table) succeed(old *table) {
	for _, b := range t.sorted {
		if c := old.said(b.Name); c != nil {
			b.greeted.CompareAndSwap(nil, &liveConn{era: c.era, hello: c.hello})
		}
	}
	t.removed = slices.DeleteFunc(slices.Clone(old.removed), func(r removed) bool { return t.byName[r.server] != nil })
	for _, b := range old.sorted {
		if c := b.greeted.Load(); c != nil && t.byName[b.Name] == nil {
			t.removed = append(t.removed, removed{b.Name, &liveConn{era: c.era, hello: c.hello}})
		}
	}
	t.removed = slices.Clone(t.removed[max(len(t.removed)-removedMost, 0):])
}

// minglesTasks reports whether a server has the tasks of several principals in one place. A program
// serves one principal unless it is shared, and then has no tasks (taskError).
func minglesTasks(b *backend, era front.Era) bool {
	return era == front.Legacy && b.Kind != upstream.KindStdio && b.Builtin == nil
}
