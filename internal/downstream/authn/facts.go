package authn

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Names of facts. factToken carries the id of the token, never its text.
const (
	factUID        = "uid"
	factGID        = "gid"
	factGroups     = "groups"
	factLabel      = "label"
	factPID        = "pid"
	factInstance   = principal.FactInstance
	factNamespaces = "namespaces"
	factToken      = "token"
	factScope      = "scope"
	factRemote     = "remote"
	factForwarded  = "forwarded_for"
)

// Names of the facts about the program of a Unix connection.
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

// Facts returns the facts that the kernel attests of a Unix peer, for the record of a
// refused caller.
func Facts(p *attest.Credentials) []principal.Fact { return unixFacts(p) }

// OwnerFacts returns the facts about a loopback caller for such a record: the owner of
// its socket, and the process that holds it if one was found.
func OwnerFacts(uid uint32, h peer.Holder) []principal.Fact {
	facts := []principal.Fact{number(factUID, uid, principal.Observed)}
	if h.PID > 0 {
		facts = append(facts, number(factPID, uint32(h.PID), principal.Observed),
			principal.Fact{Name: factProcess, Value: h.Process, Grade: principal.Observed})
	}
	return facts
}

// RemoteFacts returns the origin of a refused request: the Unix peer, the owner of a
// loopback socket or the address of the other end, and the client that a trusted proxy
// names.
func RemoteFacts(c *Caller, client netip.Addr) (facts []principal.Fact) {
	switch {
	case c == nil:
	case c.Unix != nil:
		facts = unixFacts(c.Unix)
	case c.OwnerKnown:
		facts = append(facts, number(factUID, c.OwnerUID, principal.Observed))
	case c.Remote.IsValid():
		facts = append(facts, principal.Fact{Name: factRemote, Value: c.Remote.String(), Grade: principal.Observed})
	}
	if client.IsValid() {
		facts = append(facts, principal.Fact{Name: factForwarded, Value: client.String(), Grade: principal.Claimed})
	}
	return facts
}

// unixFacts grades the kernel's facts about a Unix peer. A pid is reused after its
// process ended, so the instance is attested only where the kernel gave a handle on the
// process. Of a peer in foreign namespaces only user, groups and label are given.
func unixFacts(p *attest.Credentials) []principal.Fact {
	facts := []principal.Fact{
		number(factUID, p.UID, principal.Attested),
		number(factGID, p.GID, principal.Attested),
		groupsFact(p),
	}
	if p.Label != "" {
		facts = append(facts, principal.Fact{Name: factLabel, Value: p.Label, Grade: principal.Attested})
	}
	if p.Foreign {
		return append(facts, principal.Fact{Name: factNamespaces, Value: "foreign", Grade: principal.Observed},
			principal.Fact{Name: factPID}, principal.Fact{Name: factInstance})
	}
	pid := principal.Fact{Name: factPID}
	if p.PID > 0 {
		pid = number(factPID, uint32(p.PID), principal.Observed)
	}
	return append(facts, pid, instanceFact(p))
}

func instanceFact(p *attest.Credentials) principal.Fact {
	switch {
	case p.Instance == "":
		return principal.Fact{Name: factInstance}
	case p.InstanceAttested:
		return principal.Fact{Name: factInstance, Value: p.Instance, Grade: principal.Attested}
	}
	return principal.Fact{Name: factInstance, Value: p.Instance, Grade: principal.Observed}
}

func groupsFact(p *attest.Credentials) principal.Fact {
	if !p.GroupsKnown {
		return principal.Fact{Name: factGroups}
	}
	var all []string
	for _, g := range p.Groups {
		all = append(all, strconv.FormatUint(uint64(g), 10))
	}
	return principal.Fact{Name: factGroups, Value: strings.Join(all, ","), Grade: principal.Attested}
}

// programFacts returns the facts about the program: observed, or unavailable and
// without a value. The user who runs the process chooses all of them, in particular the
// names.
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

func number(name string, n uint32, g principal.Grade) principal.Fact {
	return principal.Fact{Name: name, Value: strconv.FormatUint(uint64(n), 10), Grade: g}
}
