package policy

import "strings"

// tokenRole is what a token's scope gives: without one every configured server
// and nothing administrative. Messaging is for tokens that come from this
// machine, whatever their scope.
func tokenRole(q Request) Decision {
	scope, has := q.Who.Fact("scope")
	if !has {
		return restrict(q, tokenAny, tokenAdmin, q.Who.Local())
	}
	// A scope that nobody proved is no reason to allow anything, least of all
	// everything, which is what a missing one means.
	if !scope.Grade.MayAllow() {
		return outside
	}
	if isMessaging(q) && !q.Who.Local() {
		return noMessaging
	}
	for rest := scope.Value; rest != ""; {
		var item string
		item, rest, _ = strings.Cut(rest, ",")
		if inScope(strings.TrimSpace(item), q) {
			return inside
		}
	}
	return outside
}

var (
	inside  = Decision{Allow: true, Rule: "token.scope", Reason: "within the token's scope"}
	outside = Decision{Rule: "token.scope", Reason: "outside the token's scope"}
)

// inScope reports whether one item of a scope covers q. The handshake of the
// aggregate is within every scope that names a server.
func inScope(item string, q Request) bool {
	if q.Action == ActionAdmin {
		return item == ActionAdmin
	}
	kind, rest, _ := strings.Cut(item, ":")
	switch item {
	case serverAgent, serverInstructions:
		kind, rest = "server", item
		if strings.HasPrefix(q.Action, item+".") {
			return q.Server == "" || q.Server == item
		}
	}
	if q.Server == "" {
		return isHandshake(q.Action) && (kind == "server" || kind == "tool")
	}
	switch kind {
	case "server":
		return q.Server == rest
	case "tool":
		server, tool, _ := strings.Cut(rest, "/")
		return q.Server == server && tool != "" && aboutTool(q, tool)
	}
	return false
}

// aboutTool: a tool's scope covers what comes before and during its call too,
// and the list, which shows that tool alone.
func aboutTool(q Request, tool string) bool {
	switch q.Action {
	case "tools/call":
		return q.Name == tool
	case "initialize", "server/discover", "tools/list", "subscriptions/listen", "logging/setLevel",
		"notifications/roots/list_changed", AskElicitation, AskSampling, AskRoots:
		return true
	}
	return false
}
