package relay

import (
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
)

// target is what is asked of one server, in that server's own names.
type target struct {
	resolve.Target
	b     *backend          // of the Target's server
	with  *gate.Charge      // what it counts as one call with; nil: nothing
	found *content.Findings // what content rules met; nil: nobody looks
	// continues: it was let in as the continuation of a parked call, and is nothing else.
	continues bool
	back      bool      // its client has been to the operator's page
	shelf     *shelving // of a merged list: the answer as it may be used again; nil: it is not
}

// aim finds the server of what was resolved; false when there is none.
func (t *table) aim(asked resolve.Target) (target, bool) {
	b := t.byName[asked.Server()]
	return target{Target: asked, b: b}, b != nil
}
