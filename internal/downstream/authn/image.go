package authn

import (
	"strings"

	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The names of the facts about the program behind a Unix connection.
const (
	factStart     = "start"
	factProcess   = "process"
	factParent    = "parent_process"
	factExe       = "exe"
	factDigest    = "exe_sha256"
	factParentExe = "parent_exe"
	factParents   = "parents"
	factCgroup    = "cgroup"
	factUnit      = "unit"
)

// observed looks at the program of a Unix connection.
func observed(c *Caller) peer.Evidence {
	if c.Observe == nil {
		return peer.Evidence{}
	}
	return c.Observe()
}

// programFacts returns what the process looks like: observed, or unavailable and
// without a value. The user who runs the process chooses all of them, the names
// above all.
func programFacts(e peer.Evidence) []principal.Fact {
	var facts []principal.Fact
	for _, f := range []struct{ name, value string }{
		{factStart, e.Start}, {factProcess, e.Process}, {factParent, e.ParentProcess}, {factExe, e.Exe}, {factDigest, e.SHA256},
		{factParentExe, e.ParentExe}, {factParents, strings.Join(e.Parents, ",")},
		{factCgroup, e.Cgroup}, {factUnit, e.Unit},
	} {
		fact := principal.Fact{Name: f.name}
		if f.value != "" {
			fact.Value, fact.Grade = f.value, principal.Observed
		}
		facts = append(facts, fact)
	}
	return facts
}

// sameProgram returns the principal of a connection as long as the observed
// program runs. When the process executes another program, the connection loses
// its principal for good: the facts were about the earlier program.
func sameProgram(p *principal.Principal) (*principal.Principal, error) {
	if w := p.Witness(); w != nil && !w.Holds() {
		return nil, ErrUnauthenticated
	}
	return p, nil
}
