package policy

// The entities that a question is evaluated with. Invariant: a scope that is not proved grants
// nothing, and a method with the name of a group is not the group.

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/trust/lookalike"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The types of what rules speak of.
const (
	TypePrincipal = "Principal" // Principal::"token:ci", as principals are written
	TypeKind      = "Kind"      // Kind::"token", the parent of its principals
	TypeAction    = "Action"    // Action::"tools/call", and Groups of them
	TypeServer    = "Server"    // Server::"notes", the parent of what it offers
	TypeTool      = "Tool"      // Tool::"notes/add"
	TypePrompt    = "Prompt"    // Prompt::"notes/summary"
	TypeResource  = "Resource"  // Resource::"notes/file:///x"
	TypeDoorward  = "Doorward"  // Doorward::"doorward", what is on no server
)

// The attributes of a tool that hold the forms of its name (lookalike.Shown).
const attrFolded, attrStroked = "folded", "stroked"

// Itself is the one entity of its type.
const Itself = "doorward"

// Actions with a resource of its own kind.
const (
	ActionCall     = "tools/call"
	ActionPrompt   = "prompts/get"
	ActionComplete = "completion/complete"
)

// Groups of actions.
const (
	groupHandshake    = "handshake"    // opening a session
	groupSession      = "session"      // what belongs to using one tool: handshake, tool list, log level, changes, questions
	groupAsk          = "ask"          // what a server asks of its client
	groupMessaging    = "messaging"    // agent.send and its like
	groupInstructions = "instructions" // instructions.read and its like

	groupCorrespondence = "correspondence" // of messaging, what depends on the addressee
	groupGuidance       = "guidance"       // of instructions, who gets a session and of which tier
)

// Actions of instruction delivery.
const (
	InstructSession     = "instructions.session"     // have one
	InstructBehavioural = "instructions.behavioural" // and read what is behavioural
	InstructStructural  = "instructions.structural"
)

// Actions of one agent towards another. They are decided with the addressee in
// Args.
const (
	AgentSee     = "agent.see"     // know of it
	AgentSend    = "agent.send"    // write to it
	AgentDeliver = "agent.deliver" // without a hold
	// AgentDelegate marks messages as sent with delegated authority. Only a permit
	// that names this action grants it; a permit for every action, or for a group,
	// does not.
	AgentDelegate = "agent.delegate"
)

// Groups are the actions of each group by name; those without are by prefix.
func Groups() map[string][]string {
	handshake := []string{"initialize", "server/discover"}
	ask := []string{AskElicitation, AskSampling, AskRoots}
	session := []string{"tools/list", "subscriptions/listen", "logging/setLevel", "notifications/roots/list_changed"}
	session = append(append(session, handshake...), ask...)
	return map[string][]string{groupHandshake: handshake, groupAsk: ask, groupSession: session, groupMessaging: nil, groupInstructions: nil,
		groupCorrespondence: {AgentSee, AgentSend, AgentDeliver, AgentDelegate},
		groupGuidance:       {InstructSession, InstructBehavioural, InstructStructural}}
}

// actions are the entities of the actions that are in Groups.
type actions map[string]types.Entity

func knownActions() actions {
	parents := map[string][]types.EntityUID{}
	for group, members := range Groups() {
		for _, m := range members {
			parents[m] = append(parents[m], types.NewEntityUID(TypeAction, types.String(group)))
			switch group {
			case groupCorrespondence:
				parents[m] = append(parents[m], types.NewEntityUID(TypeAction, groupMessaging))
			case groupGuidance:
				parents[m] = append(parents[m], types.NewEntityUID(TypeAction, groupInstructions))
			}
		}
	}
	known := actions{}
	for name, p := range parents {
		known[name] = types.Entity{UID: types.NewEntityUID(TypeAction, types.String(name)), Parents: types.NewEntityUIDSet(p...)}
	}
	return known
}

// entity is the action as rules see it. A method with the name of a group is not
// the group.
func (a actions) entity(name string) types.Entity {
	if known, ok := a[name]; ok {
		return known
	}
	id, group := name, ""
	switch {
	case strings.HasPrefix(name, ServerAgent+"."):
		group = groupMessaging
	case strings.HasPrefix(name, ServerInstructions+"."):
		group = groupInstructions
	case name == groupHandshake, name == groupSession, name == groupAsk, name == groupMessaging, name == groupInstructions, name == groupCorrespondence, name == groupGuidance:
		id = "method/" + name
	}
	e := types.Entity{UID: types.NewEntityUID(TypeAction, types.String(id))}
	if group != "" {
		e.Parents = types.NewEntityUIDSet(types.NewEntityUID(TypeAction, types.String(group)))
	}
	return e
}

// world is what the rules of one question are evaluated in.
type world struct {
	caller    caller
	principal types.Entity
	action    types.Entity
	resources []types.Entity // one, or the two that a name may mean
	context   types.Record   // without arguments
}

// world makes the entities and the context of q.
func (s *Set) world(q Request) *world {
	w := &world{caller: s.caller(q.Who), action: s.actions.entity(q.Action), resources: s.resources(q)}
	w.principal = w.caller.entity()
	if len(s.facts) > 0 {
		w.context = s.contextOf(q.Who, q.Confirmed)
	}
	return w
}

func (w *world) actionName() string { return string(w.action.UID.ID) }

// Get implements types.EntityGetter.
func (w *world) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case w.principal.UID:
		return w.principal, true
	case w.action.UID:
		return w.action, true
	}
	for _, r := range w.resources {
		if uid == r.UID {
			return r, true
		}
	}
	return types.Entity{}, false
}

func (w *world) request(resource types.EntityUID, context types.Record) cedar.Request {
	return cedar.Request{Principal: w.principal.UID, Action: w.action.UID, Resource: resource, Context: context}
}

// resources are what q is about. A completion names a prompt or a resource and
// does not say which, so the rules for both are asked.
func (s *Set) resources(q Request) []types.Entity {
	_, configured := s.servers[q.Server]
	switch {
	case q.Server == "":
		return []types.Entity{thing(TypeDoorward, Itself, q, true)}
	case q.Action == ActionCall:
		return []types.Entity{thing(TypeTool, q.Server+"/"+q.Name, q, configured)}
	case q.Action == ActionPrompt:
		return []types.Entity{thing(TypePrompt, q.Server+"/"+q.Name, q, configured)}
	case q.Action == ActionComplete:
		id := q.Server + "/" + q.Name
		return []types.Entity{thing(TypePrompt, id, q, configured), thing(TypeResource, id, q, configured)}
	case strings.HasPrefix(q.Action, "resources/") && q.Name != "":
		return []types.Entity{thing(TypeResource, q.Server+"/"+q.Name, q, configured)}
	}
	return []types.Entity{thing(TypeServer, q.Server, q, configured)}
}

func thing(typ types.EntityType, id string, q Request, configured bool) types.Entity {
	attributes := types.RecordMap{"server": types.String(q.Server), "name": types.String(q.Name), "configured": types.Boolean(configured)}
	if typ == TypeTool {
		forms := lookalike.Shown(q.Name)
		attributes[attrFolded], attributes[attrStroked] = types.String(forms[0]), types.String(forms[1])
	}
	e := types.Entity{UID: types.NewEntityUID(typ, types.String(id)), Attributes: types.NewRecord(attributes)}
	if typ != TypeServer && typ != TypeDoorward {
		e.Parents = types.NewEntityUIDSet(types.NewEntityUID(TypeServer, types.String(q.Server)))
	}
	return e
}

// caller is what the rules may know of a principal beside its facts.
type caller struct {
	name, kind             string
	local, owner, stranger bool
	scope
}

// scope is what the words of a scope give.
type scope struct {
	scoped, admin   bool
	grants, servers []types.Value
}

// caller reads a valid principal. Local principals are those of a local listener,
// and the kinds that exist on a local listener only.
func (s *Set) caller(p *principal.Principal) caller {
	kind, rest, _ := strings.Cut(p.Name(), ":")
	c := caller{name: p.Name(), kind: kind, local: p.Local()}
	switch kind {
	case principal.KindUID:
		c.local, c.owner = true, rest == s.uid
	case principal.KindLoopback:
		c.local, c.stranger = true, p.Name() != principal.LoopbackUnknown && rest != "uid="+s.uid
	case principal.KindToken, principal.KindOAuth:
		c.scope = scopeOf(p)
	case principal.KindSpawn:
		c.scope = rightsOf(p)
	}
	return c
}

// rightsOf reads the rights of a started agent. It may always speak with
// others, and never administer, whatever the words say.
func rightsOf(p *principal.Principal) scope {
	s := scopeOf(p)
	s.admin = false
	s.grants = slices.DeleteFunc(s.grants, func(v types.Value) bool { return v == types.NewEntityUID(TypeAction, ActionApprove) })
	if s.scoped {
		s.grant(ServerAgent)
	}
	return s
}

func (c *caller) entity() types.Entity {
	return types.Entity{
		UID:     types.NewEntityUID(TypePrincipal, types.String(c.name)),
		Parents: types.NewEntityUIDSet(types.NewEntityUID(TypeKind, types.String(c.kind))),
		Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(c.name), "kind": types.String(c.kind),
			"local": types.Boolean(c.local), "owner": types.Boolean(c.owner), "stranger": types.Boolean(c.stranger),
			"scoped": types.Boolean(c.scoped), "admin": types.Boolean(c.admin),
			"grants": types.NewSet(c.grants...), "servers": types.NewSet(c.servers...)}),
	}
}

// scopeOf reads the scope. One that is there and not proved is a scope without
// words: it bounds and grants nothing.
func scopeOf(p *principal.Principal) scope {
	fact, has := p.Fact("scope")
	s := scope{scoped: has}
	if !fact.Grade.MayAllow() {
		return s
	}
	for rest := fact.Value; rest != ""; {
		var word string
		word, rest, _ = strings.Cut(rest, ",")
		s.grant(strings.TrimSpace(word))
	}
	return s
}

// grant adds one word of a scope; an unknown word grants nothing.
func (s *scope) grant(word string) {
	entity := func(typ types.EntityType, id string) types.Value { return types.NewEntityUID(typ, types.String(id)) }
	switch word {
	case ActionAdmin:
		s.admin = true
		return
	case ActionApprove:
		s.grants = append(s.grants, entity(TypeAction, ActionApprove))
		return
	case ServerAgent:
		s.grants = append(s.grants, entity(TypeServer, ServerAgent), entity(TypeAction, groupMessaging))
		return
	case ServerInstructions:
		s.grants = append(s.grants, entity(TypeServer, ServerInstructions), entity(TypeAction, groupInstructions))
		return
	}
	kind, rest, _ := strings.Cut(word, ":")
	server, tool, _ := strings.Cut(rest, "/")
	switch {
	case kind == "server" && rest != "":
		s.grants = append(s.grants, entity(TypeServer, rest))
	case kind == "tool" && server != "" && tool != "":
		s.grants = append(s.grants, entity(TypeTool, rest))
		s.servers = append(s.servers, entity(TypeServer, server))
	}
}
