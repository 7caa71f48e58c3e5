package front

import (
	"net/http"
	"testing"
)

// A header that affects the decision about a request comes once; any other may come again.
func TestWhatDecidesComesOnce(t *testing.T) {
	t.Parallel()
	for name, twice := range map[string]bool{
		"Authorization": false, "MCP-Protocol-Version": false, "Mcp-Method": false, "Mcp-Name": false, "mcp-session-id": false,
		"Last-Event-ID": false, "Doorward-Session": false, "Mcp-Param-City": false,
		"Accept": true, "User-Agent": true, "Mcp-Params": true, "X-Mcp-Param-City": true,
	} {
		h := http.Header{"Accept": {"a"}, "Content-Type": {"b"}}
		h.Add(name, "x")
		if !once(h) {
			t.Errorf("%s is refused", name)
		}
		if h.Add(name, "x"); once(h) != twice {
			t.Errorf("%s twice: %v", name, once(h))
		}
	}
}
