package relay

import (
	"context"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// BenchmarkPinnedCall measures what the pin and the content rules add to a call
// of a server whose tools are approved and that is not scanned.
func BenchmarkPinnedCall(b *testing.B) {
	guard := shelf(b).Guard("s", false, nil)
	list := []byte(`[`)
	for i := range 50 {
		list = append(rawjson.AppendComma(list), fmt.Sprintf(`{"name":"tool_%d","description":"does something"}`, i)...)
	}
	conn := lister{result: append(append([]byte(`{"tools":`), list...), `]}`...)}
	t := aimed(b, "s", "tools/call", `{"name":"tool_25","arguments":{}}`)
	for _, s := range []struct {
		name string
		pin  *pin.Guard
	}{{"without", nil}, {"with", guard}} {
		b.Run(s.name, func(b *testing.B) {
			l := &link{b: newBackend(Server{Name: "s", Pin: s.pin})}
			offers := offer.New(offer.Options{Conn: conn, Guard: s.pin, Table: &l.b.params})
			ctx := context.Background()
			req := upstream.Request{Method: t.Method(), Params: t.Params()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := offers.Settled(ctx, t.Target); err != nil {
					b.Fatal(err)
				}
				if err := content.Request(nil, t.found, &req); err != nil {
					b.Fatal(err)
				}
				if _, err := content.Reply(nil, t.found, t.Method(), upstream.Reply{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// lister is a connection whose server answers every request with one result.
type lister struct {
	upstream.Conn
	result []byte
}

func (l lister) Call(context.Context, *upstream.Request, func(upstream.Event)) (upstream.Reply, error) {
	return upstream.Reply{Result: l.result}, nil
}

func (lister) Done() <-chan struct{} { return nil }
