package relay

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// A merged list contains what was approved of a server that a limit keeps from being started,
// as far as the caller may use it, and the owner is told which limit. The call of such a tool
// is refused by the limit.
func TestAServerAtALimitIsShownAsApproved(t *testing.T) {
	t.Parallel()
	s, book := stdio(t, "s", "legacy"), shelf(t)
	const tools = `[{"name":"echo","inputSchema":{"type":"object"}},{"name":"secret"}]`
	s.setList("tools/list", `{"tools":`+tools+`}`)
	book.Guard("s", false, nil).Judge(pin.Asker{Era: "legacy"}, pin.Tools, []byte(tools))
	one := func(r *Server, _ *upstream.Definition) { r.MaxInstances = 1 }
	h := build(t, []Server{s.server(pinnedBy(book, false), one)}, withRules("s", policy.List{Allow: []string{"*"}, Deny: []string{"secret"}}, elicitation))
	equal(t, "the first client", join(names(h.legacy("/mcp", "uid:1000", `{}`).call("tools/list", `{}`), "tools", "name")), "s__echo")
	m := h.modern("/mcp", "uid:1000")
	equal(t, "the second client", join(names(m.call("tools/list", `{}`), "tools", "name")), "s__echo")
	if got := h.status("s").Reason; !strings.Contains(got, "mcpServers.s.doorward.max_instances") {
		t.Errorf("status: %q does not name the limit", got)
	}
	equal(t, "a call", code(m.tool("s__echo", "")), "1503")
}
