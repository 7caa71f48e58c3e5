package relay

import (
	"context"
	"encoding/json"
	"sort"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/wire"
)

// listTime is how long a merged list waits for one server. Who is later is
// left out of this page, and the client is told to look again when it is up.
const listTime = 20 * time.Second

// aggregate serves a request on /mcp: every server the caller may use.
func (r *Relay) aggregate(ctx context.Context, x *front.Exchange) front.Reply {
	switch x.Method {
	case "ping":
		return front.Reply{Result: emptyResult}
	case "initialize":
		return r.initializeAll(x)
	case "server/discover":
		return r.discoverAll(x)
	case "subscriptions/listen":
		return r.subscribe(ctx, x, r.servers(x.Who))
	case "logging/setLevel":
		return r.setLevels(ctx, x)
	}
	if isList(x.Method) {
		return r.mergedList(ctx, x)
	}
	return r.routed(ctx, x)
}

// aggregateCapabilities are what the aggregate can carry for some server; it
// does not wait for servers to say which of them it is.
const aggregateCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{}`

func (r *Relay) initializeAll(x *front.Exchange) front.Reply {
	pass, err := r.gate.Enter(r.act(x, "", x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	r.bindingOf(x.Session)
	result := append([]byte(`{"protocolVersion":`), wire.AppendQuote(nil, x.Version)...)
	result = append(result, `,"capabilities":`+aggregateCapabilities+`,"logging":{}},"serverInfo":`...)
	result = append(append(result, r.info...), '}')
	r.gate.Leave(pass, "ok", int64(len(result)))
	return front.Reply{Result: result}
}

func (r *Relay) discoverAll(x *front.Exchange) front.Reply {
	pass, err := r.gate.Enter(r.act(x, "", x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	result := append([]byte(`{"supportedVersions":`), served...)
	result = append(result, `,"capabilities":`+aggregateCapabilities+`},"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"`+wire.MetaServerInfo+`":`...)
	result = append(append(result, r.info...), `}}`...)
	r.gate.Leave(pass, "ok", int64(len(result)))
	return front.Reply{Result: result}
}

// setLevels passes a log level to every server of the session, now and when
// one is reached later.
func (r *Relay) setLevels(ctx context.Context, x *front.Exchange) front.Reply {
	if x.Session == nil {
		return front.Reply{Error: errNoMethod}
	}
	bind := r.bindingOf(x.Session)
	bind.mu.Lock()
	bind.level = append([]byte(nil), x.Params...)
	bind.mu.Unlock()
	for _, l := range bind.all() {
		c := l.live.Load()
		if c == nil || c.era != front.Legacy || wire.GetPath(c.hello, "capabilities", "logging") == nil {
			continue
		}
		r.call(ctx, x, l.b, target{method: x.Method, params: x.Params})
	}
	return front.Reply{Result: emptyResult}
}

// routed serves a request whose params name a server.
func (r *Relay) routed(ctx context.Context, x *front.Exchange) front.Reply {
	server, t, missing := plainTarget(x)
	if missing == nil {
		return front.Reply{Error: errNoMethod}
	}
	b := r.table.Load().byName[server]
	if b == nil || !r.visible(x.Who, server) {
		return front.Reply{Error: missing}
	}
	return r.call(ctx, x, b, t)
}

// plainTarget turns the aggregate's names into one server's. missing is the
// answer when there is no such server; nil for a method that the aggregate
// does not carry.
func plainTarget(x *front.Exchange) (server string, t target, missing *wire.Error) {
	t = target{method: x.Method, params: x.Params}
	var ok bool
	switch x.Method {
	case "tools/call", "prompts/get":
		missing = errNoTool
		if x.Method == "prompts/get" {
			missing = errNoPrompt
		}
		full, _ := wire.GetString(x.Params, "name")
		if server, t.name, ok = splitName(full); ok {
			t.params = wire.Set(x.Params, wire.Edit{Key: "name", Value: wire.AppendQuote(nil, t.name)})
		}
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		missing = errNoURI
		full, _ := wire.GetString(x.Params, "uri")
		if server, t.name, ok = splitURI(full); ok {
			t.params = wire.Set(x.Params, wire.Edit{Key: "uri", Value: wire.AppendQuote(nil, t.name)})
		}
	case "completion/complete":
		return plainReference(x, t)
	}
	return server, t, missing
}

func plainReference(x *front.Exchange, t target) (string, target, *wire.Error) {
	ref := wire.Get(x.Params, "ref")
	member, split := "name", splitName
	if wire.Get(ref, "uri") != nil {
		member, split = "uri", splitURI
	}
	full, _ := wire.GetString(ref, member)
	server, name, ok := split(full)
	if ok {
		t.name = name
		t.params = wire.SetIn(x.Params, "ref", wire.Edit{Key: member, Value: wire.AppendQuote(nil, name)})
	}
	return server, t, errParams
}

// page is one server's share of a merged list.
type page struct {
	server string
	cursor []byte // raw inner cursor to ask with; nil: from the start
}

// mergedList asks all servers at once and joins what comes in time, ordered
// by server. One that is down, slow or forbidden hides none of the others.
func (r *Relay) mergedList(ctx context.Context, x *front.Exchange) front.Reply {
	pages, reply := r.pages(x)
	if reply != nil {
		return *reply
	}
	kind, _ := listingOf(x.Method)
	parts := make([]share, len(pages))
	var wg sync.WaitGroup
	for i, p := range pages {
		wg.Add(1)
		go func() {
			defer wg.Done()
			parts[i] = r.share(ctx, x, kind, p)
		}()
	}
	wg.Wait()
	return front.Reply{Result: r.join(x, kind, parts)}
}

// share is what one server contributed.
type share struct {
	server  string
	entries []byte // a JSON array in the aggregate's names; nil: nothing
	next    []byte // raw inner cursor
}

func (r *Relay) share(ctx context.Context, x *front.Exchange, kind listing, p page) share {
	b := r.table.Load().byName[p.server]
	if b == nil {
		return share{server: p.server}
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	t := target{method: x.Method, params: wire.Set(x.Params, wire.Edit{Key: "cursor", Value: p.cursor})}
	reply := r.call(ctx, x, b, t)
	if reply.Error != nil || reply.None {
		if ctx.Err() != nil && x.Session != nil {
			go r.whenUp(x, b, kind)
		}
		return share{server: p.server}
	}
	return share{server: p.server, entries: prefixEntries(p.server, kind, wire.Get(reply.Result, kind.member)),
		next: wire.Get(reply.Result, "nextCursor")}
}

// whenUp tells a session that a slow server has come up after its list went
// out without it.
func (r *Relay) whenUp(x *front.Exchange, b *backend, kind listing) {
	ctx, cancel := context.WithTimeout(x.Session.Context(), dialTime)
	defer cancel()
	if _, err := r.linkFor(x, b).get(ctx); err != nil {
		return
	}
	name := kind.member
	if name == "resourceTemplates" {
		name = "resources"
	}
	x.Session.Notify("notifications/"+name+"/list_changed", nil)
}

// prefixEntries rewrites each entry's name into the aggregate's.
func prefixEntries(server string, kind listing, entries []byte) []byte {
	out := []byte{'['}
	for entry := range wire.Elements(entries) {
		name, ok := wire.GetString(entry, kind.name)
		if !ok {
			continue
		}
		if kind.name == "name" {
			name = joinName(server, name)
		} else {
			name = joinURI(server, name)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, wire.Set(entry, wire.Edit{Key: kind.name, Value: wire.AppendQuote(nil, name)})...)
	}
	return append(out, ']')
}

// join makes one result of all shares.
func (r *Relay) join(x *front.Exchange, kind listing, parts []share) []byte {
	out := []byte(`{"` + kind.member + `":[`)
	rest := make(map[string]json.RawMessage)
	first := true
	for _, p := range parts {
		if len(p.entries) > 2 {
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(out, p.entries[1:len(p.entries)-1]...)
		}
		if p.next != nil {
			rest[p.server] = json.RawMessage(p.next)
		}
	}
	out = append(out, ']')
	if len(rest) > 0 {
		inner, _ := json.Marshal(rest)
		if sealed, err := r.seal.sealCursor(inner, x.Who, "", x.Method); err == nil {
			out = append(append(out, `,"nextCursor":`...), sealed...)
		}
	}
	if x.Era == front.Modern {
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	return append(out, '}')
}

// pages is what to ask of whom: every visible server from the start, or where
// the client's cursor says.
func (r *Relay) pages(x *front.Exchange) ([]page, *front.Reply) {
	raw := wire.Get(x.Params, "cursor")
	if raw == nil {
		var out []page
		for _, b := range r.servers(x.Who) {
			out = append(out, page{server: b.Name})
		}
		return out, nil
	}
	inner, err := r.seal.openCursor(raw, x.Who, "", x.Method)
	var rest map[string]json.RawMessage
	if err != nil || json.Unmarshal(inner, &rest) != nil {
		return nil, &front.Reply{Error: errCursor}
	}
	var out []page
	for server, cursor := range rest {
		if r.visible(x.Who, server) {
			out = append(out, page{server: server, cursor: cursor})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].server < out[j].server })
	return out, nil
}
