package relay

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/policytest"
)

// BenchmarkCall measures a tools/call of 300 bytes in a legacy session, from the front to a
// connection that answers at once: policy, record, holds, pins and an observer are on.
func BenchmarkCall(b *testing.B) {
	for _, kind := range []string{upstream.KindStdio, upstream.KindHTTP} {
		b.Run(kind, func(b *testing.B) { benchmarkCall(b, kind) })
	}
}

func benchmarkCall(b *testing.B, kind string) {
	log, err := audit.Open(b.TempDir(), audit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	g := gate.New(policytest.New(b, 1000, map[string]policy.ServerRules{"s": {Tools: everyTool, Ask: elicitation}}), log, gate.Limits{})
	r := New(Options{Gate: g, Servers: []Server{{Name: "s", Kind: kind, Pin: shelf(b).Guard("s", false, nil)}}, Log: slog.New(slog.DiscardHandler), Hold: &Hold{}, Observer: timer{}})
	defer r.Close()
	x := &front.Exchange{Who: principal.New("uid:1000"), Server: "s", Era: front.Legacy, Version: "2025-11-25", Session: &front.Session{Server: "s", Digest: strings.Repeat("d", 64)},
		ID: wire.IntID(1), Method: "tools/call", Params: []byte(`{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 200) + `","n":7}}`), Size: 300}
	connected(r, x, lister{result: []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("y", 200) + `"}]}`)})
	b.ReportAllocs()
	for b.Loop() {
		if reply := r.Request(context.Background(), x); reply.Error != nil {
			b.Fatalf("%+v", reply.Error)
		}
	}
}

// connected gives the session of x a link with an open connection.
func connected(r *Relay, x *front.Exchange, conn upstream.Conn) {
	s := r.table.Load().byName[x.Server]
	l := r.links.new(s, owner{who: x.Who, client: front.Legacy})
	c := &liveConn{conn: conn, era: front.Legacy, hello: []byte(`{}`)}
	c.offers = offer.New(offer.Options{Conn: quiet{lister{result: []byte(twoTools)}}, Guard: s.Pin, Table: &s.params})
	l.live.Store(c)
	d := r.sessions.of(x.Session)
	d.links = append(d.links, &held{link: l, stop: func() {}})
}

// quiet is a connection that does not end.
type quiet struct{ lister }

func (quiet) AfterDone(func()) {}

// timer is an observer that takes the time as the daemon's does.
type timer struct{}

func (timer) Begin(ctx context.Context, m Mark) (context.Context, Mark) {
	m.Start = time.Now()
	return ctx, m
}
func (timer) End(m Mark, _ string)                   { _ = time.Since(m.Start) }
func (timer) Carry(context.Context) (string, string) { return "", "" }
