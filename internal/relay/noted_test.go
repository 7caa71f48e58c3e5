package relay

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// The stored copy of a session has its latest state, also when several requests change it at once.
func TestTheLatestStateOfASessionIsStored(t *testing.T) {
	t.Parallel()
	h := build(t, []Server{web(t, "s", "legacy").server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	c.call("logging/setLevel", `{"level":"info"}`) // from then on the session has its binding
	d := bound(h.sessionOf(c))
	for round := range 2000 {
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() { d.memory.setLevel(fmt.Appendf(nil, `{"level":"%d-%d"}`, round, n)) })
		}
		all.Wait()
		var stored remembered
		if err := json.Unmarshal(d.session.Remembered(), &stored); err != nil {
			t.Fatal(err)
		}
		if got := string(rawjson.Get(stored.Level, "level")); got != string(d.memory.levelOf()) {
			t.Fatalf("round %d: %s is stored, and the level is %s", round, got, d.memory.levelOf())
		}
	}
}
