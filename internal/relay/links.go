package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// links makes the links to servers, finds those that clients share, and decides what each
// declares.
type links struct {
	gate        *gate.Gate
	info, meta  []byte // Doorward's clientInfo, and the _meta of requests that it makes itself
	closing     context.Context
	opens       func(server string, f Face) // called for each connection to a program that sessions share; nil: never
	note        func(*audit.Record)
	log         *slog.Logger
	watch       watch
	room        roomMaker
	acts        *acts
	leaving     *leaving
	translation *translation
}

// new makes a link with the parts that it works with.
func (k *links) new(b *backend, o owner) *link {
	l := &link{b: b, owner: o, meta: k.meta, opens: k.opens, room: k.room}
	l.ctx, l.end = lifetime.New(k.closing)
	l.hub = hub{b: b, client: o.client, ctx: l.ctx, get: l.get, live: &l.live, asks: &l.asks, log: k.log, traces: k.watch}
	l.asks = questioner{owner: o, questions: questions{gate: k.gate, acts: k.acts, server: b.Name, excess: &excess{sums: &b.unasked, note: k.note}}, rules: b.Scan, unasked: &b.unasked, known: &b.asking,
		leaving: k.leaving, note: k.note, log: k.log, ctx: l.ctx, only: l.hub.watchers.only}
	l.late = latecomer{b: b, hub: &l.hub, ctx: l.ctx, get: l.get, drop: l.drop, log: k.log}
	l.used.Store(time.Now().UnixNano())
	return l
}

// pooled returns the link that a principal's calls share, or that all principals share if the
// operator declared that safe.
func (k *links) pooled(b *backend, who *principal.Principal, client front.Era) *link {
	key := b.poolKey(who, client)
	if b.Instances == "shared" {
		who = nil
	}
	return k.keyed(b, who, client, declaration{}, key)
}

// keyed returns the pooled link of a key, for clients that declare d.
func (k *links) keyed(b *backend, who *principal.Principal, client front.Era, d declaration, key string) *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.pool[key]
	if l == nil {
		l = k.new(b, owner{who: who, client: client, init: d.init(k.info), says: d})
		l.key = key
		if client == front.Legacy {
			l.opened = l.restoreLevel
		}
		b.pool[key] = l
		if b.closed {
			l.close()
		}
	}
	l.used.Store(time.Now().UnixNano())
	return l
}

// declared returns what the connection of a modern client to b declares. Connections that
// principals share declare nothing: a question could not be assigned to one of them. A stdio
// server gets the client's clientInfo only if the client declares capabilities, because these
// need a process of their own anyway; the name alone starts no further process.
func (k *links) declared(x *front.Exchange, b *backend) (d declaration) {
	if b.Builtin != nil || b.Instances == "shared" || b.Protocol == "modern" || b.spoken.Load()&eraBit(front.Modern) != 0 {
		return d
	}
	if caps := rawjson.GetPath(x.Params, "_meta", wire.MetaCapabilities); len(caps) > len("{}") {
		if caps = k.translation.carried(x, b, caps); string(caps) != "{}" {
			d.caps = rawjson.Canonical(caps)
		}
	}
	if info := rawjson.GetPath(x.Params, "_meta", wire.MetaClientInfo); len(info) <= maxInfo && (d.caps != nil || b.Kind != upstream.KindStdio) {
		d.info = rawjson.Canonical(info)
	}
	return d
}

// modern returns the link of a modern client to b. What it declares is searched for protected
// text before a link is made for it.
func (k *links) modern(x *front.Exchange, b *backend) *link {
	d, plain := k.declared(x, b), b.poolKey(x.Who, front.Modern)
	if l := b.have(d.key(plain)); l != nil {
		return l
	}
	if d.info != nil && b.full() {
		d.info = nil
	}
	if d.empty() || !k.leaving.declares(x, b, d) {
		return k.pooled(b, x.Who, front.Modern)
	}
	return k.keyed(b, x.Who, front.Modern, d, d.key(plain))
}

// lane returns the n-th further link beside l; 0 is l itself.
func (k *links) lane(l *link, n int) *link {
	if n == 0 {
		return l
	}
	return k.keyed(l.b, l.who, l.client, l.says, l.key+"\x00"+string('0'+rune(n)))
}

// sessionInit returns the initialize params for a legacy server: those of the session's
// client, with the version that was negotiated here and without the capabilities that policy
// does not serve.
func (k *links) sessionInit(x *front.Exchange, b *backend) []byte {
	init := x.Session.Init.Params()
	if rawjson.Get(init, "clientInfo") == nil {
		return era.DefaultInit(k.info)
	}
	caps, _ := k.translation.narrow(x, b, rawjson.Get(init, "capabilities"))
	if x.Server == "" && rawjson.Get(caps, "tasks") != nil { // task ids would not be unique over all servers
		caps = rawjson.Set(caps, rawjson.Edit{Key: "tasks"})
	}
	return rawjson.Set(init, rawjson.Edit{Key: "protocolVersion", Value: rawjson.AppendQuote(nil, x.Version)}, rawjson.Edit{Key: "capabilities", Value: caps})
}
