package telemetry_test

import (
	"context"
	"testing"

	"github.com/doorward/doorward/internal/daemon/telemetry"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/policytest"
)

// answering is a built-in server that answers at once.
type answering struct{ done chan struct{} }

func (a answering) Open(*principal.Principal, string, bool, func(upstream.Event)) (upstream.Conn, []byte) {
	return a, []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
}

func (a answering) Call(ctx context.Context, _ *upstream.Request, _ func(upstream.Event)) (upstream.Reply, error) {
	if pass, ok := gate.PassOf(ctx); ok && !pass.Recorded() {
		if _, err := pass.Record(); err != nil {
			return upstream.Reply{}, err
		}
	}
	return upstream.Reply{Result: []byte(`{"content":[],"resultType":"complete"}`)}, nil
}

func (answering) Notify(context.Context, string, []byte) error          { return nil }
func (answering) Answer(context.Context, wire.ID, upstream.Reply) error { return nil }
func (answering) Listen()                                               {}
func (a answering) Done() <-chan struct{}                               { return a.done }
func (answering) Err() error                                            { return nil }
func (answering) Close()                                                {}

// BenchmarkCall is a call from the front to a server that answers at once: without an
// observer, with the metrics that are always kept, and with spans for a collector that
// is not there.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		o    func(b *testing.B) *telemetry.Telemetry
	}{
		{"nothing", func(*testing.B) *telemetry.Telemetry { return nil }},
		{"metrics", func(b *testing.B) *telemetry.Telemetry { return open(b, nil, quiet()) }},
		{"spans", func(b *testing.B) *telemetry.Telemetry { return open(b, collectorAt("http://127.0.0.1:1"), quiet()) }},
	} {
		b.Run(c.name, func(b *testing.B) { benchCall(b, c.o(b)) })
	}
}

func benchCall(b *testing.B, tel *telemetry.Telemetry) {
	log, err := audit.Open(b.TempDir(), audit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	g := gate.New(policytest.New(b, 1000, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}}}), log, gate.Limits{})
	o := relay.Options{Gate: g, Servers: []relay.Server{{Name: "s", Kind: relay.KindBuiltin, Builtin: answering{make(chan struct{})}}}, Log: quiet(), Version: "1"}
	if tel != nil {
		o.Observer = tel
		defer tel.Close()
	}
	r := relay.New(o)
	defer r.Close()
	var h front.Handler = r
	if tel != nil {
		h = tel.Door(r)
	}
	x := &front.Exchange{Who: principal.New("uid:1000"), Server: "s", Era: front.Modern, Version: "2026-07-28", ID: wire.IntID(1), Method: "tools/call",
		Params: []byte(`{"name":"tool","arguments":{"a":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`)}
	b.ReportAllocs()
	for b.Loop() {
		if reply := h.Request(context.Background(), x); reply.Error != nil {
			b.Fatalf("%+v", reply.Error)
		}
	}
}
