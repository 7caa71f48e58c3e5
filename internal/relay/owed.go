package relay

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// MetaNotYet is the member of a merged list's _meta that tells the daemon's own user
// which servers' own answers are not in it, and why.
const MetaNotYet = "doorward/not-yet"

// approved is what was approved of a server's list, as far as the caller may use
// it, as a JSON array; nil where nothing was.
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

// hurry is what ends the waiting of a merged list for a client that is hasty; nil for the
// others, and where the list goes on from a cursor.
func hurry(ctx context.Context, x *front.Exchange, servers func(*principal.Principal) []*backend) (context.Context, *listing.Hurry) {
	k, ok := listing.PinKind(x.Method)
	if !ok || !listing.Hasty(clientName(x)) || wire.Get(x.Params, "cursor") != nil {
		return ctx, nil
	}
	return listing.NewHurry(ctx, slices.ContainsFunc(servers(x.Who), func(b *backend) bool { return b.Pin != nil && b.Pin.Knows(k) }))
}

// of serves a list on the route of one server. A server that does not answer
// in time is stood in for by what was approved of it; where nothing was, there is
// nothing to show yet, and the client waits as for any other request.
func (v *lists) of(ctx context.Context, x *front.Exchange, t target) front.Reply {
	k, ok := listing.PinKind(x.Method)
	if !ok || t.b.Pin == nil || wire.Get(x.Params, "cursor") != nil || !t.b.Pin.Knows(k) {
		return v.calls.call(ctx, x, t)
	}
	l := v.sessions.linkFor(x, t.b)
	limited, cancel := context.WithTimeout(ctx, l.late.patience(x.Method, listing.Hasty(clientName(x))))
	defer cancel()
	reply := v.calls.call(limited, x, t)
	if ctx.Err() != nil || reply.Error != nil && !failure.Late(reply.Error) || reply.Error == nil && !reply.None {
		if reply.Error == nil {
			l.late.settled(x.Method)
			t.b.answered(v.log, x.Method)
		}
		return reply
	}
	l.late.missed(x.Method)
	t.b.leftOut(v.log, x.Method, reply.Error)
	kind, _ := listing.Of(x.Method)
	result := rawjson.Set(rawjson.Empty, rawjson.Edit{Key: kind.Member, Value: v.translation.approved(x, t.b, x.Method)})
	if x.Era == front.Modern {
		result = era.Modern(x.Method, result)
	}
	return front.Reply{Result: result}
}
