package relay

import (
	"context"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// What the pin and the content rules add to a call of a server whose tools are
// approved and that is not scanned.
func BenchmarkPinnedCall(b *testing.B) {
	guard := shelf(b).Guard("s", false, nil)
	list := []byte(`[`)
	for i := range 50 {
		list = append(rawjson.AppendComma(list), fmt.Sprintf(`{"name":"tool_%d","description":"does something"}`, i)...)
	}
	c := &liveConn{era: front.Legacy}
	c.offers[pin.Tools].store(guard.Judge(pin.Asker{Era: "legacy"}, pin.Tools, append(list, ']')), 0)
	t := aimed(b, "s", "tools/call", `{"name":"tool_25","arguments":{}}`)
	for _, s := range []struct {
		name string
		b    *backend
	}{{"without", newBackend(Server{Name: "s"})}, {"with", newBackend(Server{Name: "s", Pin: guard})}} {
		b.Run(s.name, func(b *testing.B) {
			l := &link{b: s.b}
			ctx := context.Background()
			req := upstream.Request{Method: t.Method(), Params: t.Params()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.pinned(ctx, c, t); err != nil {
					b.Fatal(err)
				}
				if err := l.scanRequest(t, &req); err != nil {
					b.Fatal(err)
				}
				if _, err := l.scanReply(t, upstream.Reply{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
