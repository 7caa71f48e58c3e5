package front

import (
	"net/http"
	"testing"
)

// A listen of a client that accepts no stream is refused: its acknowledgement could not be sent.
func TestAListenNeedsAStream(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]int{"application/json": http.StatusNotAcceptable, "application/json, text/event-stream": http.StatusOK, "": http.StatusOK} {
		h := open(t, Options{})
		a := h.do("POST", "/mcp/s", modernBody("subscriptions/listen"), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen", "Accept", accept)
		if reached := h.reached() > 0; a.status != want || reached != (want == http.StatusOK) {
			t.Errorf("Accept: %s: %d, the Handler is reached: %v", accept, a.status, reached)
		}
	}
}
