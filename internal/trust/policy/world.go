package policy

// The entities that a request is evaluated with. Invariant: a scope that is not verified
// grants nothing, and a method with the name of a group is not the group.

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/trust/lookalike"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The entity types that rules name.
const (
	TypePrincipal = "Principal" // Principal::"token:ci", by the name of the principal
	TypeKind      = "Kind"      // Kind::"token", the parent of its principals
	TypeAction    = "Action"    // Action::"tools/call", or a group of actions
	TypeServer    = "Server"    // Server::"notes", the parent of its tools, prompts and resources
	TypeTool      = "Tool"      // Tool::"notes/add"
	TypePrompt    = "Prompt"    // Prompt::"notes/summary"
	TypeResource  = "Resource"  // Resource::"notes/file:///x"
	TypeDoorward  = "Doorward"  // Doorward::"doorward", the resource of acts on no server
)

// The attributes of a tool that hold the forms of its name (lookalike.Shown).
const attrFolded, attrStroked = "folded", "stroked"

// Itself is the id of the only entity of type Doorward.
const Itself = "doorward"

// Actions whose resource has a type of its own.
const (
	ActionCall     = "tools/call"
	ActionPrompt   = "prompts/get"
	ActionComplete = "completion/complete"
)

// Groups of actions.
const (
	groupHandshake    = "handshake"    // opening a session
	groupSession      = "session"      // what using one tool requires: handshake, tool list, log level, changes, questions
	groupAsk          = "ask"          // questions of a server to its client
	groupMessaging    = "messaging"    // all actions that begin with "agent."
	groupInstructions = "instructions" // all actions that begin with "instructions."

	groupCorrespondence = "correspondence" // the actions of messaging that depend on the addressee
	groupGuidance       = "guidance"       // the actions that decide about delivery sessions and their tiers
)

// Actions of instruction delivery.
const (
	InstructSession     = "instructions.session"     // have a delivery session
	InstructBehavioural = "instructions.behavioural" // have one that may read behavioural documents
	InstructStructural  = "instructions.structural"  // have one that may read structural documents
)

// Actions of one agent towards another. They are decided with the addressee in
// Args.
const (
	AgentSee     = "agent.see"     // find the addressee in lists
	AgentSend    = "agent.send"    // send it a message
	AgentDeliver = "agent.deliver" // have the message delivered without a hold
	// AgentDelegate marks messages as sent with delegated authority. Only a permit
	// that names this action grants it; a permit for every action, or for a group,
	// does not.
	AgentDelegate = "agent.delegate"
)

// Groups returns the actions of each group. A group with nil has all actions with the
// prefix of its server.
func Groups() map[string][]string {
	handshake := []string{"initialize", "server/discover"}
	ask := []string{AskElicitation, AskSampling, AskRoots}
	session := []string{"tools/list", "subscriptions/listen", "logging/setLevel", "notifications/roots/list_changed"}
	session = append(append(session, handshake...), ask...)
	return map[string][]string{groupHandshake: handshake, groupAsk: ask, groupSession: session, groupMessaging: nil, groupInstructions: nil,
		groupCorrespondence: {AgentSee, AgentSend, AgentDeliver, AgentDelegate},
		groupGuidance:       {InstructSession, InstructBehavioural, InstructStructural}}
}

// actions holds the entities of the actions that Groups lists, by name. A method with the
// name of a group has another id, so that it does not become the group.
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
	for group := range Groups() {
		known[group] = types.Entity{UID: types.NewEntityUID(TypeAction, types.String("method/"+group))}
	}
	return known
}

// entity returns the entity of an action.
func (a actions) entity(name string) types.Entity {
	if known, ok := a[name]; ok {
		return known
	}
	e := types.Entity{UID: types.NewEntityUID(TypeAction, types.String(name))}
	switch {
	case strings.HasPrefix(name, ServerAgent+"."):
		e.Parents = types.NewEntityUIDSet(types.NewEntityUID(TypeAction, groupMessaging))
	case strings.HasPrefix(name, ServerInstructions+"."):
		e.Parents = types.NewEntityUIDSet(types.NewEntityUID(TypeAction, groupInstructions))
	}
	return e
}

// world holds the entities and the context that the rules of one request are evaluated with.
type world struct {
	caller    caller
	entities  types.EntityMap
	principal types.EntityUID
	action    types.EntityUID
	resources []types.EntityUID // one, or two if the name may mean either
	context   types.Record      // without arguments
}

// world makes the entities and the context of q.
func (s *Set) world(q Request) *world {
	w := &world{caller: s.caller(q.Who), entities: types.EntityMap{}}
	w.principal, w.action = w.add(w.caller.entity()), w.add(s.actions.entity(q.Action))
	for _, resource := range s.resources(q) {
		w.resources = append(w.resources, w.add(resource))
	}
	if len(s.facts) > 0 {
		w.context = s.contextOf(q.Who, q.SameProgram)
	}
	return w
}

// add adds an entity and returns its uid.
func (w *world) add(e types.Entity) types.EntityUID {
	w.entities[e.UID] = e
	return e.UID
}

// authorize evaluates rules with Cedar.
func (w *world) authorize(b ballot, resource types.EntityUID, context types.Record) cedar.Diagnostic {
	_, diag := cedar.Authorize(b, w.entities, cedar.Request{Principal: w.principal, Action: w.action, Resource: resource, Context: context})
	return diag
}

// resources returns the resource of q. The name of a completion may be that of a prompt
// or of a resource, so both are returned.
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

// caller holds the attributes of a principal for rules, apart from its facts.
type caller struct {
	name, kind string
	// owner: a caller of the daemon's own user on the Unix socket. stranger: a loopback
	// caller of another user.
	local, owner, stranger bool
	scope
}

// scope holds the rights that the words of a scope grant.
type scope struct {
	scoped, admin   bool
	grants, servers []types.Value
}

// caller returns the attributes of a valid principal. Local are the principals marked so
// by a local listener, and the kinds that exist only on a local listener.
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

// rightsOf returns the rights of a started agent. With any scope it may use messaging,
// and never administer or approve.
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

// scopeOf returns the rights of the fact scope. A scope that is not verified counts as a
// scope without words, which grants nothing.
func scopeOf(p *principal.Principal) scope {
	fact, has := p.Fact("scope")
	s := scope{scoped: has}
	if !fact.Grade.MayAllow() {
		return s
	}
	for word := range strings.SplitSeq(fact.Value, ",") {
		s.grant(strings.TrimSpace(word))
	}
	return s
}

// grant adds one word of a scope; an unknown word grants nothing.
func (s *scope) grant(word string) {
	entity := func(typ types.EntityType, id string) types.Value { return types.NewEntityUID(typ, types.String(id)) }
	kind, rest, _ := strings.Cut(word, ":")
	server, tool, _ := strings.Cut(rest, "/")
	switch {
	case word == ActionAdmin:
		s.admin = true
	case word == ActionApprove:
		s.grants = append(s.grants, entity(TypeAction, ActionApprove))
	case word == ServerAgent:
		s.grants = append(s.grants, entity(TypeServer, ServerAgent), entity(TypeAction, groupMessaging))
	case word == ServerInstructions:
		s.grants = append(s.grants, entity(TypeServer, ServerInstructions), entity(TypeAction, groupInstructions))
	case kind == "server" && rest != "":
		s.grants = append(s.grants, entity(TypeServer, rest))
	case kind == "tool" && server != "" && tool != "":
		s.grants = append(s.grants, entity(TypeTool, rest))
		s.servers = append(s.servers, entity(TypeServer, server))
	}
}
