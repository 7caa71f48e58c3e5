package relay

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// page is one server's share of a merged list.
type page struct {
	server string
	cursor []byte // raw inner cursor to ask with; nil: from the start
}

// mergedList asks all servers at once and joins what comes in time, ordered
// by server. One that is down, slow or forbidden hides and delays none of the
// others.
func (r *Relay) mergedList(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	pages, reply := r.pages(x)
	if reply != nil {
		return *reply
	}
	kind := mergedListing(x.Method)
	parts := make([]share, len(pages))
	var wg sync.WaitGroup
	with := new(gate.Charge)
	if err := r.fromShelves(ctx, x, kind, asked, pages, parts, with); err != nil {
		return r.refused(err)
	}
	for i, p := range pages {
		if parts[i].known {
			continue
		}
		wg.Go(func() { parts[i] = r.share(ctx, x, kind, asked, p, with) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return front.Reply{None: true}
	}
	for _, p := range parts { // a caller at its limit is told, and not shown a shorter list
		if p.refused != nil {
			return r.refused(p.refused)
		}
	}
	if !isList(x.Method) && !slices.ContainsFunc(parts, func(p share) bool { return p.entries != nil }) {
		return front.Reply{Error: errNoMethod} // a list that no server knows
	}
	return front.Reply{Result: r.join(x, kind, parts)}
}

// share is what one server contributed.
type share struct {
	server  string
	entries []byte // a JSON array in the aggregate's names; nil: nothing
	next    []byte // raw inner cursor
	refused error  // a limit of the caller has struck
	known   bool   // without asking the server
	missing string // why the server's own answer is not there; empty: it is
}

// share asks one server. In the place of one that does not answer in time stands
// what was approved of it; when it answers, the listening clients are told to list
// once more.
func (r *Relay) share(ctx context.Context, x *front.Exchange, kind listing, asked resolve.Target, p page, with *gate.Charge) share {
	plain, _ := asked.At(p.server).With(rawjson.Set(asked.Params(), rawjson.Edit{Key: "cursor", Value: p.cursor}))
	t, ok := r.aim(plain)
	if !ok {
		return share{server: p.server}
	}
	t.with = with
	l := r.linkFor(x, t.b)
	limited, cancel := context.WithTimeout(ctx, l.late.patience(x.Method))
	defer cancel()
	pass, err := r.enter(ctx, x, t)
	if ownLimit(err) {
		return share{server: p.server, refused: err}
	}
	var reply front.Reply
	if err != nil {
		reply = r.refused(err)
	} else {
		t.shelf = new(shelving)
		reply = r.run(limited, x, t, pass)
	}
	if reply.Error != nil || reply.None {
		out := share{server: p.server}
		if failedHere(reply.Error) && ctx.Err() == nil {
			l.late.missed(x.Method)
			out.missing = r.leftOut(t.b, x.Method, reply.Error)
			if failing := t.b.trouble.Load(); failing != nil && out.missing != whyStarting {
				out.missing = failing.why
			}
			if isLate(reply.Error) && p.cursor == nil {
				out.entries = prefixEntries(p.server, kind, r.approved(x, t.b, x.Method))
			}
		}
		return out
	}
	l.late.settled(x.Method)
	r.answered(t.b, x.Method)
	t.shelf.done(x, t.b, kind, x.Method)
	return share{server: p.server, entries: prefixEntries(p.server, kind, wire.Get(reply.Result, kind.member)),
		next: wire.Get(reply.Result, "nextCursor")}
}

// prefixEntries rewrites each entry's name into the aggregate's.
func prefixEntries(server string, kind listing, entries []byte) []byte {
	out := append(make([]byte, 0, len(entries)+len(entries)/16+16), '[')
	for entry := range wire.Elements(entries) {
		if entry = prefixEntry(server, kind, entry); entry != nil {
			out = append(comma(out), entry...)
		}
	}
	return append(out, ']')
}

// prefixEntry rewrites one entry; nil: it has no name.
func prefixEntry(server string, kind listing, entry []byte) []byte {
	member := kind.name
	if member == "" {
		member = namedBy(entry)
	}
	name, ok := wire.GetString(entry, member)
	switch {
	case !ok && kind.name != "":
		return nil
	case !ok:
	case member == "name" || member == "taskId":
		name = resolve.JoinName(server, name)
	default:
		name = resolve.JoinURI(server, name)
	}
	entry = naming{server}.entry(entry)
	if ok {
		entry = rawjson.Set(entry, rawjson.Edit{Key: member, Value: rawjson.AppendQuote(nil, name)})
	}
	return entry
}

// namedBy is the member that names an entry of a list that Doorward does not know.
func namedBy(entry []byte) string {
	for _, member := range []string{"uri", "taskId", "name"} {
		if _, ok := wire.GetString(entry, member); ok {
			return member
		}
	}
	return ""
}

// join makes one result of all shares.
func (r *Relay) join(x *front.Exchange, kind listing, parts []share) []byte {
	size := 256
	for _, p := range parts {
		size += len(p.entries) + 1
	}
	out := append(make([]byte, 0, size), `{"`+kind.member+`":[`...)
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
	if r.owns(x.Who) {
		out = appendMissing(out, parts)
	}
	if x.Era == front.Modern {
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	return append(out, '}')
}

// appendMissing names the servers whose own answer is not in a list, and why.
func appendMissing(out []byte, parts []share) []byte {
	missing := make(map[string]string)
	for _, p := range parts {
		if p.missing != "" {
			missing[p.server] = p.missing
		}
	}
	if len(missing) == 0 {
		return out
	}
	text, _ := json.Marshal(missing) // strings alone
	return append(append(append(out, `,"_meta":{"`+MetaNotYet+`":`...), text...), '}')
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
