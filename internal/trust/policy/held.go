package policy

// Held acts. Invariant: an act that is held is denied to whoever cannot hold it.

import (
	"slices"
	"strconv"
	"strings"
)

// Words of tools.ask that stand for what a server claims of a tool.
const (
	HeldDestructive = "@destructive"
	HeldWrites      = "@writes"
)

func asks(r *rule) bool { return r.asks != "" }

// decideHeld answers q for its caller without its ancestors, and says whether the act
// is held. One that nothing can hold is denied.
func (s *Set) decideHeld(q Request) Decision {
	d := s.decideAlone(q)
	if !d.Allow || !canWait(q) {
		d.Ask = Ask{}
		return d
	}
	if d.Ask.Rule == "" && q.Action == ActionCall {
		d.Ask = s.heldByList(q)
	}
	if d.Ask.Rule != "" && (!q.Holds || q.Name == "" && q.Server != "") {
		return Decision{Rule: d.Ask.Rule, Reason: "it needs the operator's approval, and cannot be held here"}
	}
	return d
}

// canWait reports whether an act can be asked about at all. What opens a session or lists
// names no object, and the operator's own acts must not wait for the operator. Any other
// act without an object has nothing that an approval could be bound to, and is denied.
func canWait(q Request) bool {
	switch {
	case q.Listing, q.Action == ActionAdmin, q.Action == ActionApprove:
		return false
	case strings.HasPrefix(q.Action, ServerAgent+"."), strings.HasPrefix(q.Action, ServerInstructions+"."):
		return true
	}
	return q.Server != "" && (q.Name != "" || !opens(q.Action))
}

// opens: it belongs to having a session, as a list and a notification do.
func opens(action string) bool {
	return slices.Contains([]string{"initialize", "server/discover", "subscriptions/listen", "logging/setLevel", "ping", AskElicitation, AskSampling}, action) ||
		strings.HasSuffix(action, "/list") || strings.HasPrefix(action, "notifications/") || strings.HasPrefix(action, "tasks/")
}

// heldByList is the entry of the server's tools.ask that covers a call. Names are compared
// once for each verdict, claims each time.
func (s *Set) heldByList(q Request) Ask {
	held := s.lists[q.Server].Held
	if len(held) == 0 {
		return Ask{}
	}
	named := s.verdict(q).named
	for i, pattern := range held {
		if i == named || claimed(pattern, q) {
			return Ask{Rule: "mcpServers." + q.Server + ".doorward.tools.ask[" + strconv.Itoa(i) + "]", Reason: "on the server's list of what is asked"}
		}
	}
	return Ask{}
}

// named is the first entry of the server's tools.ask that covers a name; -1: none does. It
// compares like a deny list: a name that looks like a held one is held.
func (s *Set) named(q Request) int {
	return slices.IndexFunc(s.lists[q.Server].Held, func(pattern string) bool {
		return pattern != HeldDestructive && pattern != HeldWrites && Denies(pattern, q.Name)
	})
}

// claimed reports whether an entry covers a tool for what is claimed of it.
func claimed(pattern string, q Request) bool {
	return pattern == HeldDestructive && !q.Tool.Harmless || pattern == HeldWrites && !q.Tool.ReadOnly
}

// AsksOfClaims reports whether it depends on what the server claims of a tool whether
// a call is held.
func (s *Set) AsksOfClaims(server string) bool {
	held := s.lists[server].Held
	return slices.Contains(held, HeldDestructive) || slices.Contains(held, HeldWrites)
}
