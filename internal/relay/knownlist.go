package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
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

// known is the kept list of a server that answers the request; nil: the server has
// to be asked. What asking has for effects beside the answer it has too.
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
	clean, err := v.leaving.request(x, t)
	if err != nil || !rawjson.Same(clean.Params(), t.Params()) {
		return nil
	}
	req, err := v.translation.outgoing(ctx, x, l, c, t)
	if err != nil {
		return nil
	}
	s := c.shelfOf(t.b, listing.ShelfKey(x, x.Method, req.Params), x.Method)
	if s != nil {
		v.levels.raise(ctx, x, l.b, c)
	}
	return s
}

// fromShelves makes the shares of the servers whose list is known: one act, which is
// decided for each of them and recorded once. A server that policy denies is asked
// like one whose list is unknown, which records why.
func (v *lists) fromShelves(ctx context.Context, x *front.Exchange, kind listing.Kind, asked resolve.Target, pages []listing.Page, parts []listing.Share, with *gate.Charge) error {
	shelves := make(map[string]*listing.Known, len(pages))
	servers := []string{} // not nil: an act on several, be they none
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
	pass, err := w.decide(ctx, v.gate, act)
	if errors.Is(err, gate.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	allowed := pass.Servers()
	_, m := w.stage(ctx, StageKnown, act)
	defer w.end(m, "ok")
	var size int64
	for i, p := range pages {
		if len(allowed) == 0 || allowed[0] != p.Server {
			continue
		}
		allowed = allowed[1:]
		q := policy.Request{Who: x.Who, Action: kind.Action, Server: p.Server, Confirmed: x.Confirmed, Listing: true}
		parts[i] = listing.Share{Server: p.Server, Known: true, Entries: shelves[p.Server].Shown(v.gate, q)}
		size += int64(len(parts[i].Entries))
	}
	pass.Leave("ok", size)
	return nil
}
