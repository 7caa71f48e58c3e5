package relay

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// lists serves the lists of one server, and those of all servers merged.
type lists struct {
	gate        *gate.Gate
	seal        *seal.Sealer
	log         *slog.Logger
	watch       watch
	table       *atomic.Pointer[table]
	acts        *acts
	sight       *sight
	leaving     *leaving
	failures    *failures
	translation *translation
	levels      *levels
	sessions    *sessions
	calls       *calls
}

// of serves a list on the route of one server. If the server does not answer in time, the
// answer is its approved list. If nothing was approved, the client waits as for any other
// request.
func (v *lists) of(ctx context.Context, x *front.Exchange, t *target) front.Reply {
	k, ok := listing.PinKind(x.Method)
	if !ok || t.b.Pin == nil || listing.Cursor(x.Params) != nil || !t.b.Pin.Knows(k) {
		return v.calls.call(ctx, x, t)
	}
	l := v.sessions.linkFor(x, t.b)
	limited, cancel := context.WithTimeout(ctx, l.late.patience(x.Method, listing.Hasty(clientName(x))))
	defer cancel()
	reply := v.calls.call(limited, x, t)
	if ctx.Err() != nil || reply.Error != nil && !failure.Late(reply.Error) || reply.Error == nil && !reply.None {
		if reply.Error == nil && !reply.None {
			l.late.settled(x.Method)
			t.b.answered(v.log, x.Method)
		}
		return reply
	}
	l.late.missed(x.Method)
	t.b.leftOut(v.log, x.Method, reply)
	kind, _ := listing.Of(x.Method)
	result := rawjson.Set(rawjson.Empty, rawjson.Edit{Key: kind.Member, Value: v.translation.approved(x, t.b, x.Method)})
	if x.Era == front.Modern {
		result = era.Modern(x.Method, result)
	}
	return front.Reply{Result: result}
}

// merged asks all servers at once and joins the answers that come in time, ordered by server.
// A server that is down, slow or forbidden hides and delays no other one.
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
	for _, p := range parts { // a caller at its limit gets the refusal, not a shorter list
		if p.Refused != nil {
			return v.failures.refused(p.Refused)
		}
	}
	declared := listing.Is(x.Method) || x.Method == "tasks/list" && x.Era == front.Legacy
	if !declared && !slices.ContainsFunc(parts, func(p listing.Share) bool { return p.Entries != nil }) {
		return front.Reply{Error: failure.NoMethod} // no server knows this list
	}
	return front.Reply{Result: v.join(x, kind, parts)}
}

// share asks one server. If it does not answer in time, or a limit refuses it, its approved list is used,
// and the listening clients are told to list again when it answers.
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
	var act gate.Act
	v.acts.counted(&act, x, &t)
	pass, err := v.watch.decide(ctx, v.gate, &act)
	if failure.OwnLimit(err) {
		return listing.Share{Server: p.Server, Refused: err}
	}
	var reply front.Reply
	if err != nil {
		reply = v.failures.refused(err)
	} else {
		t.shelf = new(shelving)
		reply = v.calls.run(limited, x, &t, &pass)
	}
	if reply.Error != nil || reply.None {
		out := listing.Share{Server: p.Server}
		if failure.Here(reply.Error) && context.Cause(ctx) != context.Canceled {
			l.late.missed(x.Method)
			out.Missing = t.b.leftOut(v.log, x.Method, reply)
			if reason, _ := rawjson.GetString(reply.Error.Data, "reason"); reason != "" && out.Missing == failure.Upstream {
				out.Missing = reason
			}
			if failing := t.b.trouble.Load(); failing != nil && out.Missing != listing.WhyStarting {
				out.Missing = failing.why
			}
			if (failure.Late(reply.Error) || reply.Limit != "") && p.Cursor == nil {
				out.Entries = listing.Prefixed(p.Server, kind, v.translation.approved(x, t.b, x.Method))
			}
		}
		return out
	}
	l.late.settled(x.Method)
	t.b.answered(v.log, x.Method)
	t.shelf.done(x, t.b, kind, x.Method)
	entries := rawjson.Get(reply.Result, kind.Member)
	if kind.Member == "tools" && x.Era == front.Legacy { // also those of a legacy server: a client would reject the whole list
		entries = listing.LegacyTools(entries)
	}
	return listing.Share{Server: p.Server, Entries: listing.Prefixed(p.Server, kind, entries), Next: listing.Next(reply.Result)}
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

// appendMissing names the servers whose own answer is missing in a list, and why.
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
	text, _ := json.Marshal(missing) // a map of strings cannot fail
	return append(append(append(out, `,"_meta":{"`+MetaNotYet+`":`...), text...), '}')
}

// pages returns the servers to ask and their cursors: every visible server from the start, or
// those in the client's cursor.
func (v *lists) pages(x *front.Exchange) ([]listing.Page, *front.Reply) {
	raw := issued(listing.Cursor(x.Params))
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

// known returns the kept list of a server that answers the request; nil: the server has to be
// asked. It has the same side effects as asking: protected text is searched for, and the log
// level is set.
func (v *lists) known(ctx context.Context, x *front.Exchange, asked resolve.Target, server string) *listing.Known {
	plain, _ := asked.At(server).With(rawjson.Set(asked.Params(), rawjson.Edit{Key: "cursor"}))
	t, ok := v.table.Load().aim(plain)
	if !ok || t.b.Builtin != nil || !listing.Is(x.Method) {
		return nil
	}
	l := v.sessions.linkFor(x, t.b)
	c := l.live.Load()
	if c == nil || !c.keeps() {
		return nil
	}
	clean, err := v.leaving.request(x, &t)
	if err != nil || !rawjson.Same(clean.Params(), t.Params()) {
		return nil
	}
	req, err := v.translation.outgoing(ctx, x, l, c, &t)
	if err != nil {
		return nil
	}
	s := c.shelfOf(t.b, listing.ShelfKey(x, x.Method, req.Params), x.Method)
	if s != nil {
		v.levels.raise(ctx, x, l.b, c)
	}
	return s
}

// fromShelves makes the shares of the servers whose list is kept: one act, decided for each
// of them and recorded once. A server that policy denies is asked like one without a kept
// list, and that request records the denial.
func (v *lists) fromShelves(ctx context.Context, x *front.Exchange, kind listing.Kind, asked resolve.Target, pages []listing.Page, parts []listing.Share, with *gate.Charge) error {
	shelves := make(map[string]*listing.Known, len(pages))
	servers := []string{} // not nil, even if empty: it makes the act one on several servers
	for _, p := range pages {
		if p.Cursor != nil {
			return nil
		}
		if s := v.known(ctx, x, asked, p.Server); s != nil {
			shelves[p.Server] = s
			servers = append(servers, p.Server)
		}
	}
	act := v.acts.of(x, "", x.Method, "")
	act.With, act.Each = with, servers
	w := v.watch.traces()
	pass, err := w.decide(ctx, v.gate, &act)
	if errors.Is(err, gate.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	allowed := pass.Servers()
	_, m := w.stage(ctx, StageKnown, &act)
	defer w.end(m, "ok")
	var size int64
	for i, p := range pages {
		if len(allowed) == 0 || allowed[0] != p.Server {
			continue
		}
		allowed = allowed[1:]
		q := policy.Request{Who: x.Who, Action: kind.Action, Server: p.Server, SameProgram: x.SameProgram, Listing: true}
		parts[i] = listing.Share{Server: p.Server, Known: true, Entries: shelves[p.Server].Shown(v.gate, q)}
		size += int64(len(parts[i].Entries))
	}
	pass.Leave("ok", size)
	return nil
}

// MetaNotYet is the member of a merged list's _meta that tells the daemon's own user which
// servers' own answers are missing, and why.
const MetaNotYet = "doorward/not-yet"

// approved returns the approved list of a server, as far as the caller may use it, as a JSON
// array; nil: nothing was approved.
func (tr *translation) approved(x *front.Exchange, b *backend, method string) []byte {
	k, ok := listing.PinKind(method)
	if !ok || b.Pin == nil || !b.Pin.Knows(k) {
		return nil
	}
	kind, _ := listing.Of(method)
	entries := b.Pin.Approved(k)
	if kept, changed := tr.keep(x, b, kind, entries, b.Kind != "stdio" && b.spoken.Load()&eraBit(front.Modern) != 0); changed {
		entries = kept
	}
	if kind.Member == "tools" && x.Era == front.Legacy {
		entries = listing.LegacyTools(entries)
	}
	return entries
}

// hurry returns the context that ends the wait of a merged list early, for a client that is
// hasty. Hurry is nil for other clients, and if the list goes on from a cursor.
func hurry(ctx context.Context, x *front.Exchange, servers func(*principal.Principal) []*backend) (context.Context, *listing.Hurry) {
	k, ok := listing.PinKind(x.Method)
	if !ok || !listing.Hasty(clientName(x)) || listing.Cursor(x.Params) != nil {
		return ctx, nil
	}
	return listing.NewHurry(ctx, slices.ContainsFunc(servers(x.Who), func(b *backend) bool { return b.Pin != nil && b.Pin.Knows(k) }))
}
