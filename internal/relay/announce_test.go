package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/test/policytest"
)

// When the policy changes, clients that listen are told that their lists may
// have changed: a modern client of the list that it was granted, a legacy
// client of the aggregate of all three. Sessions that are over are not kept
// among the listeners.
func TestListenersHearOfANewPolicy(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	old := web(t, "old", "legacy")
	h := build(t, []Server{s.server(), old.server()})
	modern, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true}`)
	all := h.legacy("/mcp", "uid:1000", `{}`)
	stream := all.listen()
	mute := h.legacy("/mcp", "uid:1000", `{}`) // has no standalone stream
	mute.call("tools/list", `{}`)

	h.gate.SetPolicy(policytest.New(t, 1000, nil))
	h.relay.Announce()
	equal(t, "modern", text(modern.next(), "method"), protocol.ToolsChanged)
	modern.silent()
	heard := map[string]bool{}
	for range 3 {
		heard[text(stream.next(), "method")] = true
	}
	if len(heard) != 3 {
		t.Errorf("the legacy client heard of %v, want all three lists", heard)
	}

	all.end()
	mute.end()
	eventually(t, "left", func() bool { return len(h.relay.sessions.audience.All()) == 1 })
}
