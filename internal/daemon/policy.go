package daemon

import (
	"strings"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Policy compiles the policy of c for a daemon that runs as uid: the default policy, the
// lists of the servers, and the policy file that c has read. It is nil if a problem is more
// than a warning.
func Policy(c *config.Config, uid uint32) (*policy.Set, []policy.Problem) {
	return policycheck.Compile(policyOptions(c, uid))
}

// PolicyText returns the whole policy of c as one Cedar document, for people.
func PolicyText(c *config.Config) string { return string(policycheck.Document(policyOptions(c, 0))) }

func policyOptions(c *config.Config, uid uint32) policy.Options {
	rules := make(map[string]policy.ServerRules, len(c.Servers))
	for name, s := range c.Servers {
		if s.Disabled {
			continue
		}
		rules[name] = policy.ServerRules{
			Tools: policy.List{Allow: s.Doorward.Tools.Allow, Deny: s.Doorward.Tools.Deny},
			Held:  s.Doorward.Tools.Ask,
			Ask:   policy.List{Allow: s.Doorward.Ask.Allow, Deny: s.Doorward.Ask.Deny},
		}
	}
	if c.Agent.Enabled {
		rules[agent.ServerName] = policy.ServerRules{Tools: policy.List{Allow: []string{"*"}}}
	}
	rules[deliver.ServerName] = policy.ServerRules{Tools: policy.List{Allow: []string{"*"}}}
	return policy.Options{UID: uid, Servers: rules, File: c.Policy, Text: c.PolicyText}
}

// rules holds the policy in force, and its text for people.
type rules struct {
	set  *policy.Set
	text string
	from policy.Options // that set was compiled from
}

// policyText returns the policy in force.
func (a api) policyText() string { return a.d.policy.Load().text }

// decide returns the decision of policy for a principal that is not connected.
func (a api) decide(q policy.Request) policy.Decision {
	who := a.named(q.Who.Name())
	if q.Who.Local() {
		who = who.WithLocal()
	}
	q.Who, q.Holds = who, policycheck.CanHold(q.Action)
	return a.d.gate.Allows(q)
}

// named returns the principal of that name as if it called now: a token with its stored
// scope, any other with the facts in its name.
func (a api) named(name string) *principal.Principal {
	if p := a.d.callers.auth.Named(name); p.Valid() {
		return p
	}
	kind, rest, err := principal.Parse(name)
	if err != nil {
		return nil
	}
	fact := func(name, value string, g principal.Grade) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: g}
	}
	switch kind {
	case principal.KindUID:
		return principal.New(name, fact("uid", rest, principal.Attested)).WithLocal()
	case principal.KindLoopback:
		if uid, ok := strings.CutPrefix(rest, "uid="); ok {
			return principal.New(name, fact("uid", uid, principal.Observed)).WithLocal()
		}
		return principal.New(name).WithLocal()
	case principal.KindSpawn:
		if s := a.d.agents.authenticated(rest); s != nil {
			return principal.New(name, fact("scope", strings.Join(s.Rights, ","), principal.Verified),
				fact("launcher", s.Launcher, principal.Verified), fact("parent", s.Parent.Name(), principal.Verified)).WithLocal().WithParent(s.Parent)
		}
	case principal.KindOAuth:
		issuer, subject, _ := strings.Cut(rest, "#")
		return principal.New(name, fact("issuer", issuer, principal.Verified), fact("subject", subject, principal.Verified))
	}
	return principal.New(name)
}
