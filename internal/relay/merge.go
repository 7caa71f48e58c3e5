package relay

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// merged asks all servers at once and joins what comes in time, ordered
// by server. One that is down, slow or forbidden hides and delays none of the
// others.
func (v *lists) merged(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	pages, reply := v.pages(x)
	if reply != nil {
		return *reply
	}
	kind := listing.Merged(x.Method)
	parts := make([]listing.Share, len(pages))
	var wg sync.WaitGroup
	with := new(gate.Charge)
	if err := v.fromShelves(ctx, x, kind, asked, pages, parts, with); err != nil {
		return v.failures.refused(err)
	}
	waiting, hurry := hurry(ctx, x, v.sight.servers)
	defer hurry.Stop()
	for i, p := range pages {
		if parts[i].Known {
			continue
		}
		wg.Go(func() {
			if parts[i] = v.share(waiting, x, kind, asked, p, with); len(parts[i].Entries) > len("[]") {
				hurry.Shows()
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return front.Reply{None: true}
	}
	for _, p := range parts { // a caller at its limit is told, and not shown a shorter list
		if p.Refused != nil {
			return v.failures.refused(p.Refused)
		}
	}
	if !listing.Is(x.Method) && !slices.ContainsFunc(parts, func(p listing.Share) bool { return p.Entries != nil }) {
		return front.Reply{Error: failure.NoMethod} // a list that no server knows
	}
	return front.Reply{Result: v.join(x, kind, parts)}
}

// share asks one server. In the place of one that does not answer in time stands
// what was approved of it; when it answers, the listening clients are told to list
// once more.
func (v *lists) share(ctx context.Context, x *front.Exchange, kind listing.Kind, asked resolve.Target, p listing.Page, with *gate.Charge) listing.Share {
	plain, _ := asked.At(p.Server).With(rawjson.Set(asked.Params(), rawjson.Edit{Key: "cursor", Value: p.Cursor}))
	t, ok := v.table.Load().aim(plain)
	if !ok {
		return listing.Share{Server: p.Server}
	}
	t.with = with
	l := v.sessions.linkFor(x, t.b)
	limited, cancel := context.WithTimeout(ctx, l.late.patience(x.Method, false))
	defer cancel()
	pass, err := v.calls.enter(ctx, x, t)
	if failure.OwnLimit(err) {
		return listing.Share{Server: p.Server, Refused: err}
	}
	var reply front.Reply
	if err != nil {
		reply = v.failures.refused(err)
	} else {
		t.shelf = new(shelving)
		reply = v.calls.run(limited, x, t, pass)
	}
	if reply.Error != nil || reply.None {
		out := listing.Share{Server: p.Server}
		if failure.Here(reply.Error) && context.Cause(ctx) != context.Canceled {
			l.late.missed(x.Method)
			out.Missing = t.b.leftOut(v.log, x.Method, reply.Error)
			if failing := t.b.trouble.Load(); failing != nil && out.Missing != listing.WhyStarting {
				out.Missing = failing.why
			}
			if failure.Late(reply.Error) && p.Cursor == nil {
				out.Entries = listing.Prefixed(p.Server, kind, v.translation.approved(x, t.b, x.Method))
			}
		}
		return out
	}
	l.late.settled(x.Method)
	t.b.answered(v.log, x.Method)
	t.shelf.done(x, t.b, kind, x.Method)
	return listing.Share{Server: p.Server, Entries: listing.Prefixed(p.Server, kind, wire.Get(reply.Result, kind.Member)),
		Next: wire.Get(reply.Result, "nextCursor")}
}

// join makes one result of all shares.
func (v *lists) join(x *front.Exchange, kind listing.Kind, parts []listing.Share) []byte {
	size := 256
	for _, p := range parts {
		size += len(p.Entries) + 1
	}
	out := append(make([]byte, 0, size), `{"`+kind.Member+`":[`...)
	rest := make(map[string]json.RawMessage)
	first := true
	for _, p := range parts {
		if len(p.Entries) > 2 {
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(out, p.Entries[1:len(p.Entries)-1]...)
		}
		if p.Next != nil {
			rest[p.Server] = json.RawMessage(p.Next)
		}
	}
	out = append(out, ']')
	if len(rest) > 0 {
		inner, _ := json.Marshal(rest)
		if sealed, err := v.seal.SealCursor(inner, x.Who, "", x.Method); err == nil {
			out = append(append(out, `,"nextCursor":`...), sealed...)
		}
	}
	if v.failures.owns(x.Who) {
		out = appendMissing(out, parts)
	}
	if x.Era == front.Modern {
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	return append(out, '}')
}

// appendMissing names the servers whose own answer is not in a list, and why.
func appendMissing(out []byte, parts []listing.Share) []byte {
	missing := make(map[string]string)
	for _, p := range parts {
		if p.Missing != "" {
			missing[p.Server] = p.Missing
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
func (v *lists) pages(x *front.Exchange) ([]listing.Page, *front.Reply) {
	raw := wire.Get(x.Params, "cursor")
	if raw == nil {
		var out []listing.Page
		for _, b := range v.sight.servers(x.Who) {
			out = append(out, listing.Page{Server: b.Name})
		}
		return out, nil
	}
	inner, err := v.seal.OpenCursor(raw, x.Who, "", x.Method)
	var rest map[string]json.RawMessage
	if err != nil || json.Unmarshal(inner, &rest) != nil {
		return nil, &front.Reply{Error: failure.Cursor}
	}
	var out []listing.Page
	for server, cursor := range rest {
		if v.sight.visible(x.Who, server) {
			out = append(out, listing.Page{Server: server, Cursor: cursor})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Server < out[j].Server })
	return out, nil
}
