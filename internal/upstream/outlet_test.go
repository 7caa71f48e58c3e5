package upstream

import (
	"bytes"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/wire"
)

// TestAnOutletBoundsAllBytesOfItsEvents shows that a server cannot make an outlet keep more than
// its bound and one event, whichever member of the messages is long.
func TestAnOutletBoundsAllBytesOfItsEvents(t *testing.T) {
	t.Parallel()
	const long, most = 1000, 10_000
	for name, ev := range map[string]Event{
		"method": {Method: strings.Repeat("m", long)},
		"params": {Method: "m", Params: bytes.Repeat([]byte("p"), long)},
		"id":     {Method: "m", ID: wire.ID(strings.Repeat("1", long))},
	} {
		o := outlet{on: func(Event) {}, max: most, held: true}
		kept := 0
		for o.push(ev) {
			kept++
		}
		if kept == 0 || kept > most/long+1 {
			t.Errorf("a long %s: %d events of %d bytes are kept, the bound is %d bytes", name, kept, long, most)
		}
		for {
			if _, ok := o.pop(); !ok {
				break
			}
		}
		if o.size != 0 {
			t.Errorf("a long %s: an empty outlet counts %d bytes", name, o.size)
		}
	}
}
