package relay

import (
	"context"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/upstream"
)

// A program is started ahead only where later clients share its process. A program that keeps
// state for each session has a process for each legacy session, and the command line needs none
// ahead of its commands.
func TestOnlySharedProcessesAreStartedAhead(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		perSession bool
		face       Face
		want       bool
	}{
		{false, Face{Who: "uid:1000", Caps: `{}`}, true},
		{false, Face{Who: "uid:1000", Modern: true}, true},
		{false, Face{Who: "uid:1000", Modern: true, Caps: `{}`}, true},
		{true, Face{Who: "uid:1000", Caps: `{}`}, false},
		{true, Face{Who: "uid:1000", Modern: true}, false},
		{true, Face{Who: "uid:1000", Modern: true, Caps: `{}`}, true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "legacy")
			h := build(t, []Server{s.server(func(r *Server, _ *upstream.Definition) { r.PerSession = c.perSession })})
			opened := false
			Warm(context.Background(), h.relay, map[string]Face{"s": c.face}, func(string, error) { opened = true })
			if opened != c.want || (s.connected() > 0) != c.want {
				t.Errorf("%+v, state for each session %v: opened %v, %d processes; want %v", c.face, c.perSession, opened, s.connected(), c.want)
			}
		})
	}
}
