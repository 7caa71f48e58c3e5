package relay

import (
	"bytes"
	"context"
	"math"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// A list that a connection has answered stays with the connection, in the aggregate's
// names and before policy has taken anything out. The next merged list of the same
// caller with the same params is made from it, as long as the server is known to answer
// the same: it reports changes and has reported none, or it said for how long its answer
// holds. The end of the connection, a change of the configuration and one of what is
// approved make the server be asked again. Lists in pages are not kept.

const (
	// shelfBytes is the size of the largest list that is kept.
	shelfBytes = 1 << 20
	// shelvesOfConn is how many lists of one connection are kept.
	shelvesOfConn = 16
)

// knownList is a kept list. It is not changed.
type knownList struct {
	changes, epoch uint64
	until          time.Time // zero: until the server reports a change
	text           []byte    // a JSON array in the aggregate's names
	names          []string  // the server's own, in the order of the entries
	ends           []int     // where each entry ends in text
}

// shelving is the making of a knownList while a server is asked. A nil one is of a
// request whose answer is not kept.
type shelving struct {
	conn           *liveConn
	key            string
	changes, epoch uint64
	asked          time.Time
	result         []byte // of the server, with what is withheld taken out
	mirrors        bool
}

// begin notes what has to be the same when the list is used again.
func (s *shelving) begin(x *front.Exchange, l *link, c *liveConn, method string, params []byte) {
	if s == nil {
		return
	}
	*s = shelving{conn: c, key: shelfKey(x, method, params), changes: c.changesOf(method), epoch: l.b.epoch(), asked: time.Now(), mirrors: l.mirrors(c)}
}

// take notes the answer.
func (s *shelving) take(result []byte) {
	if s != nil {
		s.result = bytes.Clone(result)
	}
}

// done keeps the list on the connection if it may be used again.
func (s *shelving) done(x *front.Exchange, b *backend, kind listing, method string) {
	if s.conn == nil || len(s.result) == 0 || len(s.result) > shelfBytes || wire.Get(s.result, "nextCursor") != nil {
		return
	}
	until, ok := s.conn.holds(b, method, s.result, s.asked)
	if !ok {
		return
	}
	made := s.shelve(b.Name, kind, x.Era == front.Legacy && s.conn.era == front.Modern)
	made.changes, made.epoch, made.until = s.changes, s.epoch, until
	if made.current(s.conn, b, method) {
		s.conn.shelve(s.key, made)
	}
}

// reported are the capabilities of servers that report changes of a list. Nothing
// reports those of templates and of skills for certain.
var reported = map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}

// holds is how long an answer may be used again. A program on a pipe is heard
// whenever it reports a change; of others a report may be lost.
func (c *liveConn) holds(b *backend, method string, result []byte, asked time.Time) (until time.Time, ok bool) {
	if c.era == front.Modern {
		ttl, err := strconv.ParseInt(string(wire.Get(result, "ttlMs")), 10, 64)
		return asked.Add(time.Duration(min(ttl, math.MaxInt32)) * time.Millisecond), err == nil && ttl > 0
	}
	member, known := reported[method]
	return time.Time{}, known && b.Kind == "stdio" && b.Builtin == nil && isTrue(wire.GetPath(c.hello, "capabilities", member, "listChanged"))
}

// shelve puts the entries that some caller may use in the aggregate's names.
func (s *shelving) shelve(server string, kind listing, older bool) *knownList {
	out := &knownList{text: []byte{'['}}
	for entry := range wire.Elements(wire.Get(s.result, kind.member)) {
		name, ok := wire.GetString(entry, kind.name)
		if !ok || s.mirrors && kind.member == "tools" && headersOf(entry).broken {
			continue
		}
		if older && kind.member == "tools" {
			entry = legacyTool(entry)
		}
		out.text = append(comma(out.text), prefixEntry(server, kind, entry)...)
		out.names, out.ends = append(out.names, name), append(out.ends, len(out.text))
	}
	out.text = append(out.text, ']')
	return out
}

// shown is what a caller may use of the list, as a JSON array. The caller of shown
// does not change it.
func (s *knownList) shown(g *gate.Gate, q policy.Request) []byte {
	out, whole, from := []byte(nil), true, 1
	for i, name := range s.names {
		q.Name = name
		allowed := g.Allows(q).Allow
		if whole && !allowed {
			whole = false
			out = append(make([]byte, 0, len(s.text)), bytes.TrimSuffix(s.text[:from], []byte{','})...)
		}
		if !whole && allowed {
			out = append(comma(out), s.text[from:s.ends[i]]...)
		}
		from = s.ends[i] + 1
	}
	if whole {
		return s.text
	}
	return append(out, ']')
}

func (s *knownList) current(c *liveConn, b *backend, method string) bool {
	return c.alive() && s.changes == c.changesOf(method) && s.epoch == b.epoch() && (s.until.IsZero() || time.Now().Before(s.until))
}

// epoch changes with what is approved of the server.
func (b *backend) epoch() uint64 {
	if b.Pin == nil {
		return 0
	}
	return b.Pin.Epoch()
}

// shelve keeps a list. The one that makes room for it may be any other.
func (c *liveConn) shelve(key string, s *knownList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shelves == nil {
		c.shelves = make(map[string]*knownList)
	}
	for other := range c.shelves {
		if len(c.shelves) < shelvesOfConn {
			break
		}
		delete(c.shelves, other)
	}
	c.shelves[key] = s
}

// shelfOf is the list that a connection keeps for a request; nil: none that holds.
func (c *liveConn) shelfOf(b *backend, key, method string) *knownList {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[key]
	if s != nil && !s.current(c, b, method) {
		delete(c.shelves, key)
		return nil
	}
	return s
}

// perRequest are the members of _meta that say nothing of what is asked.
var perRequest = []rawjson.Edit{{Key: "progressToken"}, {Key: "traceparent"}, {Key: "tracestate"}, {Key: "baggage"}}

// shelfKey is for whom a list was asked, and how: no caller gets what another has
// asked for, also on a connection that they share.
func shelfKey(x *front.Exchange, method string, params []byte) string {
	if wire.Get(params, "_meta") != nil {
		params = rawjson.SetIn(params, "_meta", perRequest...)
	}
	return method + "\x00" + string('0'+rune(x.Era)) + x.Who.Key() + "\x00" + string(params)
}

// known is the kept list of a server that answers the request; nil: the server has
// to be asked. What asking has for effects beside the answer it has too.
func (r *Relay) known(ctx context.Context, x *front.Exchange, asked resolve.Target, server string) *knownList {
	plain, _ := asked.At(server).With(rawjson.Set(asked.Params(), rawjson.Edit{Key: "cursor"}))
	t, ok := r.aim(plain)
	if !ok || t.b.Builtin != nil || !isList(x.Method) {
		return nil
	}
	l := r.linkFor(x, t.b)
	c := l.live.Load()
	if c == nil || !c.keeps() {
		return nil
	}
	clean, err := r.leaving(x, t)
	if err != nil || !same(clean.Params(), t.Params()) {
		return nil
	}
	req, err := r.outgoing(ctx, x, l, c, t)
	if err != nil {
		return nil
	}
	s := c.shelfOf(t.b, shelfKey(x, x.Method, req.Params), x.Method)
	if s != nil {
		l.raise(ctx, x, c)
	}
	return s
}

func (c *liveConn) keeps() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.shelves) > 0
}

// fromShelves makes the shares of the servers whose list is known: one act, which is
// decided for each of them and recorded once. A server that policy denies is asked
// like one whose list is unknown, which records why.
func (r *Relay) fromShelves(ctx context.Context, x *front.Exchange, kind listing, asked resolve.Target, pages []page, parts []share, with *gate.Charge) error {
	shelves := make(map[string]*knownList, len(pages))
	servers := []string{} // not nil: an act on several, be they none
	for _, p := range pages {
		if p.cursor != nil {
			return nil
		}
		if s := r.known(ctx, x, asked, p.server); s != nil {
			shelves[p.server] = s
			servers = append(servers, p.server)
		}
	}
	act := r.act(x, "", x.Method, "")
	act.With, act.Each = with, servers
	pass, err := r.gate.Enter(act)
	allowed := pass.Servers()
	if err != nil || len(allowed) == 0 {
		return err
	}
	var size int64
	for i, p := range pages {
		if len(allowed) == 0 || allowed[0] != p.server {
			continue
		}
		allowed = allowed[1:]
		q := policy.Request{Who: x.Who, Action: kind.action, Server: p.server, Confirmed: x.Confirmed, Listing: true}
		parts[i] = share{server: p.server, known: true, entries: shelves[p.server].shown(r.gate, q)}
		size += int64(len(parts[i].entries))
	}
	pass.Leave("ok", size)
	return nil
}
