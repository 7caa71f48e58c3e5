package deliver

import (
	"context"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
)

// TestAnOutputWhoseEndHasARefIsNotKept: a terminal sequence within a ref hides it in the whole
// output. The text for the parent is without the sequence, and the ref is found there.
func TestAnOutputWhoseEndHasARefIsNotKept(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mode: watermark.Redact})
	got, err := h.s.deliveries.Voice(context.Background(), h.reader(h.full()))
	h.must(err)
	act := gate.Act{Who: program("kid"), Server: "agent", Name: "result"}
	for at := 1; at < len(got.Ref); at++ {
		whole := "so: " + got.Ref[:at] + "\x1b[32m" + got.Ref[at:] + "."
		text, _ := plaintext.Clean(whole)
		out, keep, blocked := h.s.Printed(act, text, strings.NewReader(whole))
		if out != "so: [redacted]." || keep || blocked {
			t.Errorf("at %d: %q, kept %v, blocked %v", at, out, keep, blocked)
		}
	}
}
