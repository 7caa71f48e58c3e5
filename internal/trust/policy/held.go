package policy

// Held acts. Invariant: an act that must be held is denied if the request cannot hold it.

import (
	"slices"
	"strconv"
	"strings"
)

// Words of tools.ask that select tools by the claims of the server about them.
const (
	HeldDestructive = "@destructive" // tools that are not claimed to be harmless
	HeldWrites      = "@writes"      // tools that are not claimed to be read-only
)

func asks(r *rule) bool { return r.asks != "" }

// decideHeld answers q for its caller without its ancestors, and determines whether the
// act is held. An act that must be held and cannot is denied.
func (s *Set) decideHeld(q *Request) Decision {
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

// canWait reports whether rules that hold apply to an act. They do not apply to acts that
// open a session or list, because these have no object, nor to the operator's own acts,
// which must not wait for the operator. Any other act without an object is denied when it
// must be held, because an approval needs an object to be bound to.
func canWait(q *Request) bool {
	switch {
	case q.Listing, q.Action == ActionAdmin, q.Action == ActionApprove:
		return false
	case strings.HasPrefix(q.Action, ServerAgent+"."), strings.HasPrefix(q.Action, ServerInstructions+"."):
		return true
	}
	return q.Server != "" && (q.Name != "" || !opens(q.Action))
}

// opens reports whether an action belongs to the session rather than to an object of the
// server, such as initialize, a list or a notification.
func opens(action string) bool {
	return slices.Contains([]string{"initialize", "server/discover", "subscriptions/listen", "logging/setLevel", "ping", AskElicitation, AskSampling}, action) ||
		strings.HasSuffix(action, "/list") || strings.HasPrefix(action, "notifications/") || strings.HasPrefix(action, "tasks/")
}

// heldByList returns the first entry of the server's tools.ask that covers a call. The
// name is compared once for each verdict, the claims with each call.
func (s *Set) heldByList(q *Request) Ask {
	held := s.lists[q.Server].Held
	if len(held) == 0 {
		return Ask{}
	}
	named := s.verdict(q).named
	for i, pattern := range held {
		if i == named || claimed(pattern, q) {
			return Ask{Rule: "mcpServers." + q.Server + ".doorward.tools.ask[" + strconv.Itoa(i) + "]", Reason: "on the server's ask list"}
		}
	}
	return Ask{}
}

// named returns the index of the first entry of the server's tools.ask that covers the
// name; -1: none does. It compares like a deny list: a name that looks like a held one is held.
func (s *Set) named(q Request) int {
	return slices.IndexFunc(s.lists[q.Server].Held, func(pattern string) bool {
		return pattern != HeldDestructive && pattern != HeldWrites && Denies(pattern, q.Name)
	})
}

// claimed reports whether an entry covers a tool because of the claims about it.
func claimed(pattern string, q *Request) bool {
	return pattern == HeldDestructive && !q.Tool.Harmless || pattern == HeldWrites && !q.Tool.ReadOnly
}

// AsksOfClaims reports whether the claims of a server about its tools decide which calls are held.
func (s *Set) AsksOfClaims(server string) bool {
	held := s.lists[server].Held
	return slices.Contains(held, HeldDestructive) || slices.Contains(held, HeldWrites)
}
